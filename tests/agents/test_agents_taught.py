"""A real agent before a real model: what the engine made is what is stored, bit for bit."""

from pathlib import Path

import pytest

from leyden_contracts import Verdict
from support.agent_stage import stage_in
from support.faults import BASE_MODEL
from support.loop import calls_in_log
from support.real_engine import real_engine
from support.taught_engine import taught_model


@pytest.mark.agents
@pytest.mark.timeout(900)
def test_the_calls_are_the_engines(tmp_path: Path) -> None:
    model = taught_model(tmp_path, context=1024)
    task = {"environment": "agents", "command": ["opentelemetry-instrument", "python", "plain_openai_agent.py"]}
    with real_engine(tmp_path, model, BASE_MODEL) as engine, stage_in(tmp_path / "stage", engine.url) as stage:
        trajectory = stage.play({"plain": task}, seconds=600)["plain"]
    assert trajectory.verdict is Verdict.COMPLETE
    assert trajectory.transitions[0].finish_reason == "tool_calls"
    assert len(trajectory.transitions) == 2, "the tool's result was shown to the model"
    logged = calls_in_log(engine.log)
    for call in trajectory.transitions:
        made = (call.prompt_token_ids, call.response_token_ids, call.response_logprobs)
        assert made == logged[call.response_id]
