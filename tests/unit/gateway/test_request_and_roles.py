"""Model names become roles; an agent's request becomes what the run imposes."""

import json

import pytest

from leyden_contracts import RunSpec
from leyden_gateway.errors import ApiError
from leyden_gateway.replicas import Patience
from leyden_gateway.request import imposed, read_ask, upstream_body
from leyden_gateway.roles import Roles


def spec(**changes: object) -> RunSpec:
    values = {"id": "r", "base_model": "tiny", "agent": "a:b", "grader": "a:b", **changes}
    return RunSpec.model_validate(values)


def sent(run: RunSpec, role: str = "policy", purpose: str = "train", **ask: object) -> dict:
    asked = read_ask(json.dumps({"model": "m", "messages": [], **ask}).encode())
    return json.loads(upstream_body("tiny", imposed(asked, run, role, purpose)[1]))


def test_policy_is_the_trained_role():
    roles = Roles(spec(roles={"writer": {}, "checker": {"trained": False, "models": ["gpt-4o"]}}))
    names = ("policy", "writer", "policy/writer", "checker", "policy/checker", "gpt-4o")
    assert [roles.role(name) for name in names] == ["writer"] * 3 + ["checker"] * 3


def test_a_role_that_is_named_policy_is_meant_by_policy():
    roles = Roles(spec(roles={"writer": {}, "policy": {"trained": False}}))
    assert roles.role("policy") == "policy"


def test_the_base_models_name_is_no_role():
    with pytest.raises(ApiError, match=r"`policy`, `policy/policy`") as caught:
        Roles(spec()).role("tiny")
    assert caught.value.status == 404


def test_what_the_gateway_does_not_need_stays_as_sent():
    tools = [{"type": "function", "function": {"name": "f"}}]
    extra = {
        "tools": tools,
        "tool_choice": "auto",
        "response_format": {"type": "text"},
        "chat_template_kwargs": {"a": 1},
    }
    body = sent(spec(), **extra)
    assert {name: body[name] for name in extra} == extra
    assert (body["stream"], body["logprobs"], body["return_token_ids"]) == (False, True, True)
    assert not {"n", "stream_options", "max_completion_tokens"} & body.keys()


def test_nothing_the_agent_says_turns_the_record_off():
    body = sent(
        spec(), logprobs=False, return_token_ids=False, include_reasoning=False, stream=True, stream_options={}, n=1
    )
    assert (body["stream"], body["logprobs"], body["return_token_ids"]) == (False, True, True)
    assert not {"include_reasoning", "stream_options", "n"} & body.keys()


@pytest.mark.parametrize("purpose", ["train", "eval"])
def test_the_run_decides_how_a_trained_role_samples(purpose):
    run = spec(sampling={"temperature": 0.7, "eval_temperature": 0.1, "max_tokens": 50})
    body = sent(run, purpose=purpose, temperature=2, top_p=0.1, top_k=1, seed=3, frequency_penalty=1, max_tokens=99)
    assert body["temperature"] == (0.7 if purpose == "train" else 0.1)
    assert (body["top_p"], body["max_tokens"]) == (1.0, 50)
    assert (body["top_k"], body["min_p"], body["repetition_penalty"]) == (0, 0, 1)
    assert not {"seed", "frequency_penalty"} & body.keys()


def test_a_frozen_role_samples_as_the_agent_says():
    run = spec(roles={"policy": {}, "checker": {"trained": False}}, sampling={"max_tokens": 5})
    body = sent(run, "checker", temperature=0.2, top_p=0.1, max_completion_tokens=99)
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.2, 0.1, 99)
    assert "max_tokens" not in sent(run, "checker")


async def test_patience_ends_and_starts_with_the_first_pause():
    patience = Patience(0.1, "x")
    with pytest.raises(ApiError, match=r"no replica served x within 0.1 s"):
        for _ in range(20):
            await patience.pause()
