"""Intermediate rewards: each rule gives what it says, to the call it says, and nothing unless it is asked for."""

import sys
from pathlib import Path
from typing import Any

import pytest

from leyden_contracts import SignalRules, Transition
from leyden_traces import Fact
from leyden_traces.signals import RULES
from support.agent_spans import assemble, chat, fact, tool
from support.spans import transition

CHATS = [chat("r1", at=(10, 20)), chat("r2", at=(30, 40))]


def call(number: int, **fields: Any) -> Transition:
    return transition(number, response_id=f"r{number}", **fields)


def signals(
    rules: dict[str, float], facts: list[Fact], *calls: Transition, **more: Any
) -> dict[tuple[int, str], float]:
    found = assemble(list(calls or (call(1), call(2))), facts, rules=SignalRules.model_validate(rules), **more).signals
    assert list(found) == sorted(found, key=lambda signal: (signal.call, signal.name))
    return {(signal.call, signal.name): signal.value for signal in found}


def reply(response: str, arguments: str) -> Fact:
    asked = {"type": "tool_call", "id": "c", "name": "add", "arguments": arguments}
    values = {"gen_ai.operation.name": "chat", "gen_ai.response.id": response}
    return fact(f"l{response}", values | {"gen_ai.output.messages": [{"role": "assistant", "parts": [asked]}]})


def test_every_rule_of_a_run_has_its_function() -> None:
    assert list(RULES) == list(SignalRules.model_fields)
    page = (Path(__file__).parents[3] / "infra" / "docs" / "signals.md").read_text()
    assert [name for name in RULES if f"| `{name}` |" not in page] == []


def test_no_rule_makes_no_signal() -> None:
    assert signals({}, [*CHATS, tool("a", at=(21, 22), error="x")]) == {}


def test_tools_that_failed_or_did_not_are_summed_by_call() -> None:
    facts = [*CHATS, tool("a", at=(21, 22), error="x"), tool("b", at=(21, 22), error="x"), tool("c", at=(22, 23))]
    facts.append(tool("d", at=(41, 42)))
    found = signals({"tool_error": -0.5, "tool_success": 0.1}, facts)
    assert found == {(1, "tool_error"): -1.0, (1, "tool_success"): 0.1, (2, "tool_success"): 0.1}


def test_a_tool_before_the_first_call_says_nothing_of_any() -> None:
    assert signals({"tool_error": -0.5}, [*CHATS, tool("a", at=(1, 2), error="x")]) == {}


def test_arguments_that_are_no_json_object_or_that_the_tool_refused_count_once_a_call() -> None:
    assert signals({"invalid_arguments": -1}, [reply("r1", '{"a": 1}'), reply("r2", '{"a": ')]) == {
        (2, "invalid_arguments"): -1
    }
    values = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "a", "error.type": "ValidationError"}
    refused = fact("refused", values, at=(21, 22), error="no")
    assert signals({"invalid_arguments": -1}, [*CHATS, refused]) == {(1, "invalid_arguments"): -1}
    both = [reply("r1", "["), fact("refused", values, at=(21, 22), error="no")]
    assert signals({"invalid_arguments": -1}, both) == {(1, "invalid_arguments"): -1}


def test_the_same_tool_with_the_same_arguments_again() -> None:
    facts = [
        *CHATS,
        tool("add", '{"a": 1, "b": 2}', span="s1", at=(21, 22)),
        tool("add", '{"b":2,"a":1}', span="s2", at=(41, 42)),
        tool("add", '{"a": 1, "b": 3}', span="s3", at=(43, 44)),
        tool("sub", '{"a": 1, "b": 2}', span="s4", at=(43, 44)),
        tool("add", '{"a": 1, "b": 3}', span="s5", at=(45, 46)),
        tool("add", span="s6", at=(47, 48)),
        tool("add", span="s7", at=(47, 48)),
    ]
    assert signals({"repeated_call": -0.25}, facts) == {(2, "repeated_call"): -0.5}


def test_a_reply_that_was_cut_by_its_length_limit() -> None:
    found = signals({"format_violation": -1}, [], call(1, finish_reason="length"), call(2, finish_reason="cut"))
    assert found == {(1, "format_violation"): -1}


def test_latency_is_of_the_gateways_clock_where_it_is_known() -> None:
    calls = call(1, start_ns=10**9, end_ns=3 * 10**9), call(2, start_ns=0, end_ns=9), call(3, start_ns=5, end_ns=4)
    assert signals({"latency_per_s": -0.1}, [], *calls) == {(1, "latency_per_s"): pytest.approx(-0.2)}


def test_cost_counts_prompt_and_response() -> None:
    calls = call(1, tokens=250), call(2, prompt_token_ids=b"", response_token_ids=b"", response_logprobs=b"")
    assert signals({"cost_per_1k_tokens": -2}, [], *calls) == {(1, "cost_per_1k_tokens"): -1}


def test_the_graders_own_by_call_and_none_beyond_the_last() -> None:
    found = signals({"format_violation": -1}, [], call(1, finish_reason="length"), call_rewards=(0.5,))
    assert found == {(1, "format_violation"): -1, (1, "grader"): 0.5}
    assert signals({}, [], call(1), call_rewards=(0.5, 0.25)) == {(1, "grader"): 0.5}
    assert signals({}, [], call(1), call(2), call_rewards=(0.0, 0.25)) == {(1, "grader"): 0.0, (2, "grader"): 0.25}


def test_a_signal_is_finite_whatever_the_weight() -> None:
    found = signals({"latency_per_s": 1e308}, [], call(1, start_ns=1, end_ns=10**12))
    assert found == {(1, "latency_per_s"): sys.float_info.max}


def test_the_first_of_two_uses_is_the_one_after_the_earlier_call() -> None:
    facts = [*CHATS, tool("add", "{}", span="slow", at=(21, 100)), tool("add", "{}", span="quick", at=(41, 42))]
    assert signals({"repeated_call": -1}, facts) == {(2, "repeated_call"): -1}
