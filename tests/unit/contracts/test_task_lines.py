"""The fast way of storing a task against the plain one: the same ids, the same stored task, the same refusals."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leyden_contracts import Task
from leyden_contracts.reading import BadTask, read_task
from leyden_contracts.task_line import line_id, task_line

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(["input", "expected", "tags", "id", "question"])
TAGS = st.dictionaries(st.text(), st.text(), max_size=3) | JSON
TASK = st.fixed_dictionaries({"input": JSON}, optional={"expected": JSON, "tags": TAGS})
ANYTHING = st.dictionaries(FIELDS, JSON | TAGS, max_size=4) | TASK | JSON


def plainly(raw: object) -> Task | list[str]:
    try:
        return Task.of(read_task(raw))
    except BadTask as error:
        return error.faults


def fast(raw: object) -> Task | list[str]:
    try:
        line = task_line(raw)
    except BadTask as error:
        return error.faults
    assert b"\n" not in line and b"\r" not in line
    task = Task.model_validate_json(line)
    assert line_id(line) == task.id
    return task


@settings(max_examples=150)
@given(ANYTHING, st.booleans())
@example({"input": {"b": 1, "a": 2}}, True)
@example({"input": [{"b": 1, "a": {"d": 1, "c": 2}}], "tags": {"z": "1", "y": "2"}}, False)
@example({"input": "\ud800"}, True)
@example({"input": float("inf")}, True)
@example({"input": 1, "tags": None}, True)
@example({"input": 1, "id": "x"}, True)
def test_the_same_as_the_plain_way(value: object, ascii_only: bool) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only, indent=ascii_only or None).encode(errors="surrogatepass")
    expected = plainly(raw)
    assert fast(raw) == expected
    if isinstance(expected, Task):
        # Equality of dicts does not see their order; the agent does.
        assert json.dumps(Task.model_validate_json(task_line(raw)).input) == json.dumps(expected.input)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"input": 1, "input": 2}',
        b'{"input": 1, "tags": {"a": "x", "a": "y"}}',
        b'{"input": {"b": 1, "a": 2, "b": 3}}',
        b'{"input": 1e999}',
        b'{"input": [NaN]}',
        b'{"input": -0.0, "expected": 1E2}',
        b'{"input": 123456789012345678901234567890}',
        b'{"input": "\xff"}',
        b'\xef\xbb\xbf{"input": 1}',
        b' {"input": "\\u2028 \\u0000 \xe2\x80\xa8\\r\\n"} \r',
        b'{"input": 1} {"input": 2}',
        b"[]",
        b'"input"',
        *(b'{"input": ' + b"[" * depth + b"]" * depth + b"}" for depth in (100, 195, 198, 199, 200, 201, 260)),
        *(b'{"input": ' + b'{"a":' * depth + b"1" + b"}" * depth + b"}" for depth in (100, 198, 199, 200, 260)),
    ],
)
def test_the_same_for_odd_lines(raw: bytes) -> None:
    assert fast(raw) == plainly(raw)


@settings(max_examples=80)
@given(ANYTHING)
def test_the_same_for_parsed_values(value: object) -> None:
    assert fast(value) == plainly(value)


def test_what_is_no_stored_line_has_no_id() -> None:
    with pytest.raises(ValueError, match="no stored task"):
        line_id(b'{"input":1}')
