"""Starts: which settings fit together, and which lines of data are accepted in which form."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from leyden_contracts import RunSpec
from leyden_contracts.start_line import BadStartLine, start_line

SPEC = {"base_model": "tiny", "agent": "a:b", "grader": "a:c"}
USER = {"role": "user", "content": "1 + 1"}
TALK = {"messages": [USER, {"role": "assistant", "content": "2"}]}


def line(kind: Any, raw: object) -> Any:
    return json.loads(start_line(raw, kind, ["policy"]))


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ({"kind": "magic"}, "'sft', 'dpo', 'adapter'"),
        ({"kind": "sft", "epochs": 2, "steps": 3}, "give one of them"),
        ({"kind": "sft", "min_reward": 1}, "give `run`"),
        ({"kind": "sft", "beta": 1}, "Extra inputs"),
        ({"kind": "sft", "role": "policy"}, "give `run`"),
        ({"kind": "sft", "run": "old", "role": "boss"}, "no trained role"),
        ({"kind": "dpo", "pairing": "every"}, "give `run`"),
        ({"kind": "dpo", "smoothing": 0.5}, "less than 0.5"),
        ({"kind": "adapter", "run": "old"}, "Field required"),
        ({"kind": "adapter", "run": "old", "version": 0}, "greater than or equal to 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(start: dict, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        RunSpec.model_validate({**SPEC, "start": start})


def test_a_run_that_never_publishes_has_no_start() -> None:
    algorithm = {"control": "unpublished", "max_staleness": 1000}
    with pytest.raises(ValidationError, match="leave `start` out"):
        RunSpec.model_validate({**SPEC, "algorithm": algorithm, "start": {"kind": "sft"}})


def test_a_start_is_read_back_as_it_was() -> None:
    spec = RunSpec.model_validate({**SPEC, "start": {"kind": "dpo", "run": "old", "margin": 0.5}})

    assert RunSpec.model_validate_json(spec.model_dump_json()) == spec


def test_a_conversation_is_stored_as_templates_take_it() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"z": 1, "a": 2}'}}
    parts = [{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]
    messages = [
        {**USER, "tool_calls": None},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": parts},
    ]

    stored = line("sft", {"messages": messages, "reward": 1.0, "model": "m"})

    assert stored["prompt"] == []
    user, assistant, tool = stored["completion"]
    assert user == USER
    # The order of the arguments is what the model is to say.
    assert json.dumps(assistant["tool_calls"][0]["function"]) == '{"name": "f", "arguments": {"z": 1, "a": 2}}'
    assert (assistant["content"], tool["content"], tool["tool_call_id"]) == ("", "42", "c1")
    assert "reward" not in stored


def test_prompts_may_be_texts_or_messages() -> None:
    talk = TALK["messages"]
    assert line("sft", {"prompt": "a", "completion": "b"}) == {"prompt": "a", "completion": "b"}
    assert line("sft", {"prompt": [USER], "completion": talk[1:]}) == {"prompt": [USER], "completion": talk[1:]}
    assert line("sft", {"prompt": [USER], "completion": "2"}) == {"prompt": [USER], "completion": talk[1:]}


def test_pairs_are_read_in_trls_forms() -> None:
    good, bad = ([{"role": "assistant", "content": text}] for text in ("2", "3"))
    plain = {"prompt": "1 + 1 =", "chosen": " 2", "rejected": " 3"}
    stored = {"prompt": [USER], "chosen": good, "rejected": bad}
    assert line("dpo", plain) == plain
    assert line("dpo", stored) == stored
    assert line("dpo", {"messages": [USER], "chosen": good, "rejected": bad}) == stored
    assert line("dpo", {"prompt": [USER], "chosen": "2", "rejected": "3"}) == stored
    assert line("dpo", {"chosen": [USER, *good], "rejected": [USER, *bad]}) == stored


@pytest.mark.parametrize(
    ("kind", "bad", "told"),
    [
        ("sft", b"{broken", "not JSON"),
        ("sft", b"[1]", "a line is a JSON object"),
        ("sft", b"[" * 100_000, "not JSON"),
        ("sft", b'{"prompt": "a", "completion": "b", "tools": [{"x": NaN}]}', "not JSON"),
        ("sft", b'{"prompt": "a", "completion": "\\ud800"}', "not JSON|surrogate"),
        ("sft", {"input": 1}, "give `messages`, or `prompt` and `completion`"),
        ("sft", {**TALK, "prompt": "a"}, "give `messages`, or `prompt` and `completion`"),
        ("sft", {"prompt": "a"}, "completion: Field required"),
        ("sft", {"messages": "hello"}, "messages: give a list"),
        ("sft", {"messages": []}, "no turn of the assistant"),
        ("sft", {"messages": [USER]}, "no turn of the assistant"),
        ("sft", {"messages": [{"role": "robot", "content": "?"}]}, "messages.0.role: 'robot'"),
        ("sft", {"messages": ["?"]}, "messages.0: a message is an object"),
        ("sft", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content"),
        ("sft", {"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "a `function` with a `name`"),
        ("sft", {"prompt": "a", "completion": ""}, "`completion` is empty"),
        ("sft", {"prompt": "", "completion": "b"}, "`prompt` is empty"),
        ("sft", {**TALK, "role": "boss"}, "'boss' is none of this run's trained roles: policy"),
        ("sft", {"messages": [{"role": "assistant", "content": "hello"}]}, "the assistant speaks first"),
        ("dpo", {"prompt": "a", "chosen": "b"}, "rejected: Field required"),
        ("dpo", {"prompt": "a", "chosen": "b", "rejected": "b"}, "nothing to prefer"),
        ("dpo", {"chosen": [USER], "rejected": [USER]}, "no turn of the assistant"),
        ("dpo", {"prompt": "a", "messages": [USER], "chosen": "b", "rejected": "c"}, "give one of them"),
        ("dpo", {"prompt": "a", "chosen": 1, "rejected": "c"}, "chosen: give a list"),
    ],
)
def test_a_bad_line_is_refused_with_what_is_wrong(kind: Any, bad: object, told: str) -> None:
    with pytest.raises(BadStartLine, match=told):
        start_line(bad, kind, ["policy"])
