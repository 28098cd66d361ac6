"""Agents of five frameworks, each with the instrumentation it has: the trajectory that comes of it, as documented."""

from typing import Any

import pytest

from leyden_contracts import Trajectory, Verdict
from support.trajectory_page import CREW, NEW_CONVENTIONS, read_block, write_block
from support.trajectory_text import rendered


def case(*command: str, environment: str = "agents", variables: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a task's input: a command of an environment."""
    return {"environment": environment, "command": command, "variables": variables or {}}


CASES = {
    "openai": case("opentelemetry-instrument", "python", "plain_openai_agent.py", variables=NEW_CONVENTIONS),
    "langchain-openinference": case("python", "langchain_agent.py", "openinference"),
    "langchain-opentelemetry": case("python", "langchain_agent.py", "opentelemetry"),
    "openai-agents-openinference": case("python", "openai_agents_agent.py", "openinference"),
    "openai-agents-opentelemetry": case("python", "openai_agents_agent.py", "opentelemetry"),
    "autogen": case("python", "autogen_agent.py", "openai"),
    "autogen-alone": case("python", "autogen_agent.py", "nothing"),
    "autogen-openinference": case("python", "autogen_agent.py", "openinference"),
    "crewai-openinference": case("python", "crewai_agent.py", environment="crewai", variables=CREW | NEW_CONVENTIONS),
}


OUTSIDE = {
    "outside-openai": CASES["openai"],
    "outside-langchain": CASES["langchain-openinference"],
}
"""The same, but their model is somebody else's."""


@pytest.fixture(scope="module")
def trajectories(stage) -> dict[str, Trajectory]:
    elsewhere = {"OPENAI_BASE_URL": f"{stage.model}/v1", "OPENAI_API_KEY": "another"}
    outside = {name: task | {"variables": task["variables"] | elsewhere} for name, task in OUTSIDE.items()}
    return stage.play(CASES | outside, seconds=800)


@pytest.mark.agents
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [*CASES, *OUTSIDE])
def test_the_agent_gives_the_documented_trajectory(
    name: str, trajectories: dict[str, Trajectory], pytestconfig: pytest.Config
) -> None:
    trajectory = trajectories[name]
    if name in OUTSIDE:
        assert trajectory.verdict is Verdict.TEXT_ONLY
        assert trajectory.transitions == ()
    else:
        assert trajectory.verdict is Verdict.COMPLETE
        assert trajectory.texts == (), "each of its calls passed the gateway"
    text = rendered(trajectory)
    if pytestconfig.getoption("--rewrite", default=False):
        write_block(name, text)
    assert text == read_block(name)
