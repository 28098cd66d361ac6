"""Tool calls are read as vLLM's hermes parser reads them."""

import json

import pytest

from leyden_engine.tools import parse_tool_calls

ADD = '{"name": "add", "arguments": {"a": 1, "b": "é"}}'


def names(calls: list[dict]) -> list[tuple[str, object]]:
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]


def test_no_call() -> None:
    assert parse_tool_calls("The answer is 3.") == ("The answer is 3.", [])


def test_one_call() -> None:
    content, calls = parse_tool_calls(f"<tool_call>\n{ADD}\n</tool_call>")
    assert content is None and names(calls) == [("add", {"a": 1, "b": "é"})]
    assert calls[0]["type"] == "function" and calls[0]["function"]["arguments"] == '{"a": 1, "b": "é"}'


def test_text_before_and_several_calls() -> None:
    content, calls = parse_tool_calls(f"Let me see. <tool_call>{ADD}</tool_call> and <tool_call>{ADD}</tool_call>.")
    assert content == "Let me see. " and len(names(calls)) == 2
    assert calls[0]["id"] != calls[1]["id"]


def test_a_call_whose_end_is_missing() -> None:
    assert names(parse_tool_calls(f"<tool_call>{ADD}")[1]) == [("add", {"a": 1, "b": "é"})]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        '{"name": "add"}',
        '{"arguments": {}}',
        '{"name": 3, "arguments": {}}',
        '["add", {}]',
        "3",
        "[" * 5000,
        '{"name": "add", "arguments": {}} trailing',
    ],
)
def test_malformed_calls_are_shown_as_text(body: str) -> None:
    text = f"I call <tool_call>{body}</tool_call>"
    assert parse_tool_calls(text) == (text, [])
    both = f"<tool_call>{ADD}</tool_call><tool_call>{body}</tool_call>"
    assert parse_tool_calls(both) == (both, [])
