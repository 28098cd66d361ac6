"""Agents' spans beside the gateway's calls: what is the same call, what stands where, and no trust in clocks."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leyden_contracts import SignalRules, Trajectory, Transition, Verdict
from leyden_traces import Fact, span_id
from support.agent_spans import assemble, captured, captured_names, chat, fact, named, tool
from support.spans import transition

ASKS = {"gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "add"}]}]}
TALK = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": [{"role": "assistant", "content": "hi"}]}
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "ann"}


def call(number: int, **fields: Any) -> Transition:
    return transition(number, response_id=f"r{number}", **fields)


def shown(trajectory: Trajectory) -> dict[str, int]:
    """Return the steps' names and the calls they came after."""
    return {step.name: step.after_call for step in trajectory.steps}


def ids(name: str) -> str:
    return named(name).hex()


def own(number: int) -> str:
    return span_id("run-a", "g-0.0", 1, number).hex()


def test_an_llm_span_with_the_replys_id_is_the_gateways_call() -> None:
    facts = [fact("ann", AGENT), fact("l", TALK | {"gen_ai.response.id": "r1"}, parent="ann")]
    trajectory = assemble([call(1)], facts)
    assert trajectory.texts == ()
    assert (trajectory.transitions[0].agent, trajectory.transitions[0].parent) == ("ann", ids("ann"))
    assert trajectory.transitions[0].model_copy(update={"agent": "", "parent": ""}) == call(1)


def test_the_responses_protocol_shows_another_id() -> None:
    assert assemble([call(1)], [fact("l", TALK | {"gen_ai.response.id": "resp_r1"})]).texts == ()
    assert len(assemble([call(1)], [fact("l", TALK | {"gen_ai.response.id": "resp_x"})]).texts) == 1


def test_an_llm_span_around_the_request_is_the_gateways_call() -> None:
    facts = [fact("ann", AGENT), fact("l", TALK, parent="ann"), fact("post", {"http.method": "POST"}, parent="l")]
    trajectory = assemble([call(1, parent=ids("post"))], facts)
    assert trajectory.texts == ()
    assert (trajectory.transitions[0].agent, trajectory.transitions[0].parent) == ("ann", ids("ann"))


def test_an_llm_span_beyond_a_tool_did_not_make_the_request() -> None:
    facts = [fact("l", TALK), tool("t", parent="l")]
    trajectory = assemble([call(1, parent=ids("t"))], facts)
    assert len(trajectory.texts) == 1
    assert trajectory.transitions[0].parent == ids("t")


def test_a_named_parent_that_never_arrived_leaves_no_mark() -> None:
    assert assemble([call(1, parent=ids("gone"))], []).transitions == (call(1),)


def test_without_an_id_the_same_numbers_of_tokens_are_the_same_call() -> None:
    usage = {"gen_ai.usage.input_tokens": 8, "gen_ai.usage.output_tokens": 8}
    facts = [
        fact(f"l{number}", TALK | usage | {"gen_ai.agent.name": f"ann{number}"}, at=(number, number + 1))
        for number in (1, 2, 3)
    ]
    trajectory = assemble([call(1), call(2)], facts[::-1])
    assert [each.agent for each in trajectory.transitions] == ["ann1", "ann2"]
    assert [text.agent for text in trajectory.texts] == ["ann3"]
    other = fact("l", TALK | usage | {"gen_ai.response.id": "elsewhere"})
    assert len(assemble([call(1)], [other]).texts) == 1, "it says that it is another call"


def test_nested_spans_of_one_call_are_told_once() -> None:
    outer, inner = fact("outer", TALK | {"gen_ai.agent.name": "ann"}), fact("inner", TALK, parent="outer")
    assert [text.span for text in assemble([], [outer, inner]).texts] == [ids("inner")]
    matched = fact("inner", TALK | {"gen_ai.response.id": "r1"}, parent="outer")
    assert assemble([call(1)], [outer, matched]).texts == ()


def test_a_call_that_never_got_an_answer_is_no_text_call() -> None:
    asked = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": [{"role": "user", "content": "hi"}]}
    assert assemble([], [fact("l", asked, error="429")]).texts == ()
    assert len(assemble([], [fact("l", asked)]).texts) == 1
    assert assemble([], [fact("l", {"gen_ai.operation.name": "chat"})]).texts == (), "its text is not known"


def test_only_an_attempt_without_counted_calls_is_text_only() -> None:
    text = fact("l", TALK)
    assert assemble([], [text]).verdict is Verdict.TEXT_ONLY
    assert assemble([], []).verdict is Verdict.COMPLETE
    assert assemble([call(1)], [text]).verdict is Verdict.COMPLETE
    assert assemble([], [text], calls=1).verdict is Verdict.INCOMPLETE


def test_a_tool_came_after_the_call_that_asked_for_it() -> None:
    facts = [
        fact("l1", {"gen_ai.operation.name": "chat", "gen_ai.response.id": "r1"} | ASKS, at=(10, 20)),
        chat("r2", at=(30, 40)),
        tool("add", call_id="c1", at=(50, 60), process="another machine"),
    ]
    assert shown(assemble([call(1), call(2)], facts)) == {"add": 1}


def test_without_an_id_the_clock_of_one_process_tells() -> None:
    facts = [chat("r1", at=(10, 20)), chat("r2", at=(30, 40)), tool("before", at=(1, 2)), tool("between", at=(20, 25))]
    facts += [tool("within", at=(35, 36)), tool("after", at=(41, 50))]
    expected = {"before": 0, "between": 1, "within": 1, "after": 2}
    assert shown(assemble([call(1), call(2)], facts)) == expected


def test_the_clock_of_another_process_tells_nothing() -> None:
    facts = [chat("r1", at=(10, 20)), tool("far", at=(1000, 1001), process="q")]
    assert shown(assemble([call(1)], facts)) == {"far": 0}


def test_a_tool_elsewhere_began_when_what_is_around_it_did() -> None:
    around = fact("client", {"rpc.system": "mcp"}, at=(25, 28))
    facts = [chat("r1", at=(10, 20)), chat("r2", at=(30, 40)), around]
    facts.append(tool("far", at=(1, 2), process="q", parent="client"))
    assert shown(assemble([call(1), call(2)], facts)) == {"far": 1}


def test_agents_at_work_at_the_same_time_are_not_mixed_up() -> None:
    facts = [fact("root", AGENT, at=(0, 100))]
    for number, name in ((1, "a"), (2, "b")):
        facts.append(fact(name, AGENT | {"gen_ai.agent.name": name}, parent="root", at=(1, 99)))
        facts.append(chat(f"r{number}", parent=name, at=(10, 20 + number)))
        facts.append(tool(f"t{number}", parent=name, at=(30, 31)))
    steps = shown(assemble([call(1), call(2)], facts))
    assert (steps["t1"], steps["t2"]) == (1, 2)


def test_a_step_stands_in_the_nearest_step_or_call() -> None:
    facts = [
        fact("ann", AGENT),
        fact("plain", {}, parent="ann"),
        tool("t1", parent="plain"),
        fact("l", TALK | {"gen_ai.response.id": "r1"}, parent="plain"),
        tool("t2", parent="l"),
        fact("text", TALK, parent="t2"),
        tool("t3", parent="text"),
    ]
    trajectory = assemble([call(1)], facts)
    parents = {step.name: step.parent for step in trajectory.steps}
    assert parents == {"ann": "", "t1": ids("ann"), "t2": own(1), "t3": ids("text")}
    assert trajectory.texts[0].parent == ids("t2")


def test_two_instrumentations_of_one_tool_make_one_step_with_all_that_is_known() -> None:
    facts = [
        fact("ann", AGENT),
        fact("again", AGENT, parent="ann"),
        tool("add", {"a": 1}, parent="again"),
        fact("plain", {}, parent="add"),
        tool("add", span="inner", call_id="c1", parent="plain"),
        fact("l1", {"gen_ai.operation.name": "chat", "gen_ai.response.id": "r1"} | ASKS, process="q"),
    ]
    agent, add = sorted(assemble([call(1)], facts).steps, key=lambda step: step.name != "ann")
    assert (agent.name, add.name) == ("ann", "add")
    assert (add.span, add.parent, add.input, add.after_call) == (ids("add"), ids("ann"), '{"a": 1}', 1)


def test_a_tool_that_uses_another_one_makes_two_steps() -> None:
    steps = assemble([], [tool("a"), tool("b", parent="a"), tool("a", span="c", parent="b")]).steps
    assert sorted(step.name for step in steps) == ["a", "a", "b"]


def test_parents_in_a_circle_end_somewhere() -> None:
    facts = [tool("a", parent="b"), tool("b", parent="a"), tool("c", parent="c"), fact("l", TALK, parent="l")]
    trajectory = assemble([call(1, parent=ids("a"))], facts)
    assert len(trajectory.steps) == 3
    assert len(trajectory.texts) == 1


_FACTS = [
    *captured("openai_agents_openinference")[1],
    chat("r1", at=(10, 20)),
    chat("r1", "twin", at=(10, 20)),
    fact("l3", TALK),
    tool("add", {"a": 1}, at=(21, 22)),
    tool("add", {"a": 2}, at=(21, 22), error="boom"),
    tool("add", {"a": 2}, span="add2", at=(21, 22)),
]
_CALLS = [call(1), call(2, parent=ids("add2"), finish_reason="length"), call(3, start_ns=5, end_ns=7)]
_RULES = SignalRules.model_validate(dict.fromkeys(SignalRules.model_fields, 0.1))
_EXPECTED = assemble(_CALLS, _FACTS, rules=_RULES).model_dump_json()


@settings(max_examples=60)
@given(st.permutations(_FACTS + _FACTS[::3]), st.permutations(_CALLS + _CALLS[:1]))
def test_any_order_and_repetition_gives_the_same_trajectory(facts: list[Fact], calls: list[Transition]) -> None:
    assert assemble(_CALLS, facts, transitions=calls, rules=_RULES).model_dump_json() == _EXPECTED


@pytest.mark.parametrize("name", captured_names())
def test_real_spans_backwards_give_the_same_trajectory(name: str) -> None:
    calls, facts = captured(name)
    there, back = assemble(calls, facts, rules=_RULES), assemble(calls[::-1], facts[::-1] + facts, rules=_RULES)
    assert there.model_dump_json() == back.model_dump_json()


def test_tokens_that_nobody_counted_match_nothing() -> None:
    nothing = {"prompt_token_ids": b"", "response_token_ids": b"", "response_logprobs": b""}
    assert len(assemble([call(1, **nothing)], [fact("l", TALK)]).texts) == 1


def test_of_nested_spans_of_one_call_the_inner_one_was_nearest_to_it() -> None:
    reply = TALK | {"gen_ai.response.id": "r1"}
    facts = [fact("outer", reply, at=(1, 90)), fact("inner", reply, parent="outer", at=(2, 20))]
    assert shown(assemble([call(1)], [*facts, tool("t", at=(30, 31))])) == {"t": 1}


def test_calls_by_another_clock_are_not_before_anything() -> None:
    facts = [chat("r1", at=(10, 30)), chat("r2", at=(10, 20), process="q"), tool("t", at=(40, 41), process="q")]
    assert shown(assemble([call(1), call(2)], facts)) == {"t": 2}


def test_three_instrumentations_of_one_tool_make_one_step() -> None:
    facts = [tool("add", span="a"), tool("add", span="b", parent="a"), tool("add", {"x": 1}, span="c", parent="b")]
    assert [(step.span, step.input) for step in assemble([], facts).steps] == [(ids("a"), '{"x": 1}')]
