"""What captured spans of real instrumentations say: `data/` holds an agent each that adds 37 and 58 with a tool."""

import json

import pytest

from leyden_contracts import Trajectory, Verdict
from support.agent_spans import assemble, captured, captured_names


def shown(trajectory: Trajectory) -> list[str]:
    """Return the trajectory's agents and steps, a line each."""
    names = {step.span: step.name for step in trajectory.steps}
    calls = [f"call {call.number} of {call.agent} in {names.get(call.parent)}" for call in trajectory.transitions]
    steps = [
        f"{step.kind} {step.name} in {names.get(step.parent)} after {step.after_call}" for step in trajectory.steps
    ]
    return calls + steps


SOLVER = [
    "call 1 of solver in solver",
    "call 2 of solver in solver",
    "tool add in solver after 1",
    "agent solver in None after 0",
]
WRITER_AND_CHECKER = [
    "call 1 of writer in writer",
    "call 2 of writer in writer",
    "call 3 of checker in checker",
    "tool add in writer after 1",
    "agent writer in None after 0",
    "agent checker in None after 2",
]
HANDOFF = [
    *WRITER_AND_CHECKER[:4],
    "handoff to checker in writer after 2",
    "agent writer in Agent workflow after 0",
    "agent checker in Agent workflow after 2",
    "agent Agent workflow in None after 0",
]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("langchain_openinference", SOLVER),
        ("langchain_openinference_hidden", SOLVER),
        ("langchain_openllmetry", SOLVER),
        ("crewai_openinference", WRITER_AND_CHECKER),
        ("autogen_openinference", WRITER_AND_CHECKER),
        ("openai_v2", ["call 1 of  in None", "call 2 of  in None"]),
    ],
)
def test_agents_tools_and_turns(name: str, lines: list[str]) -> None:
    calls, facts = captured(name)
    trajectory = assemble(calls, facts)
    assert shown(trajectory) == lines
    assert trajectory.verdict is Verdict.COMPLETE


@pytest.mark.parametrize(
    ("name", "kind"), [("openai_agents_openinference", "tool"), ("openai_agents_otel_v2", "other")]
)
def test_a_handoff_is_a_step(name: str, kind: str) -> None:
    calls, facts = captured(name)
    lines = [f"{kind} {line}" if line.startswith("handoff") else line for line in HANDOFF]
    assert shown(assemble(calls, facts)) == lines


def test_autogen_alone_does_not_tell_of_its_calls() -> None:
    calls, facts = captured("autogen_builtin")
    assert shown(assemble(calls, facts))[:4] == [
        "call 1 of  in None",
        "call 2 of  in None",
        "call 3 of  in None",
        "tool add in writer after 0",
    ]


@pytest.mark.parametrize("name", captured_names())
def test_calls_of_the_gateway_are_not_told_twice(name: str) -> None:
    calls, facts = captured(name)
    assert assemble(calls, facts).texts == ()


@pytest.mark.parametrize("name", [name for name in captured_names() if name not in ("autogen_builtin", "openai_v2")])
def test_what_the_tool_was_given_and_made(name: str) -> None:
    calls, facts = captured(name)
    (add,) = [step for step in assemble(calls, facts).steps if step.name == "add"]
    if name.endswith("hidden"):
        assert (add.input, add.output) == ("", "")
    else:
        assert (json.loads(add.input), add.output) == ({"a": 37, "b": 58}, "95")
    assert not add.failed
    assert add.duration_ms > 0


@pytest.mark.parametrize(
    "name",
    ["langchain_openinference", "langchain_openllmetry", "crewai_openinference", "autogen_openinference", "openai_v2"],
)
def test_without_the_gateway_the_same_spans_are_text_calls(name: str) -> None:
    calls, facts = captured(name)
    trajectory = assemble([], facts)
    assert trajectory.verdict is Verdict.TEXT_ONLY
    assert len(trajectory.texts) == len(calls)
    first, second = trajectory.texts[:2]
    assert '"content":"The answer is 95."' in second.reply
    assert '"name":"add"' in first.reply
    assert "What is 37+58?" in first.messages
    assert '"role":"tool"' in second.messages
    assert (first.model, first.input_tokens, first.output_tokens) == (
        "policy",
        len(calls[0].prompt_token_ids) // 4,
        len(calls[0].response_token_ids) // 4,
    )
