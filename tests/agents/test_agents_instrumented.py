"""Agents of five frameworks, each with the instrumentation it has: the trajectory that comes of it, as documented."""

from typing import Any

import pytest

from leyden_contracts import Trajectory, Verdict
from support.trajectory_text import rendered

CONTENT = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
QUIET_CREW = {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "CREWAI_TESTING": "true"}
"""CrewAI's own reports to its makers, which are not the user's telemetry."""


def case(*command: str, environment: str = "agents", **variables: str) -> dict[str, Any]:
    """Return a task's input: a command of an environment."""
    return {"environment": environment, "command": command, "variables": variables}


CASES = {
    "langchain-openinference": case("python", "langchain_agent.py", "openinference"),
    "langchain-opentelemetry": case("python", "langchain_agent.py", "opentelemetry"),
    "openai-agents-openinference": case("python", "openai_agents_agent.py", "openinference"),
    "openai-agents-opentelemetry": case("python", "openai_agents_agent.py", "opentelemetry"),
    "autogen": case("python", "autogen_agent.py", "builtin"),
    "autogen-openinference": case("python", "autogen_agent.py", "openinference"),
    "crewai-openinference": case("python", "crewai_agent.py", environment="crewai", **QUIET_CREW),
    "openai": case("opentelemetry-instrument", "python", "plain_openai_agent.py", **CONTENT),
}


@pytest.fixture(scope="module")
def trajectories(stage) -> dict[str, Trajectory]:
    return stage.play(CASES, seconds=280)


@pytest.mark.agents
@pytest.mark.parametrize("name", CASES)
def test_the_agent_gives_the_documented_trajectory(name, trajectories) -> None:
    trajectory = trajectories[name]
    print(rendered(trajectory))
    assert trajectory.verdict is Verdict.COMPLETE
    assert trajectory.texts == ()
