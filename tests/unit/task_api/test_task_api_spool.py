"""However a file is cut into chunks on the wire, it is the same tasks in the same parts; memory holds little of it."""

import errno
import itertools
import json
import tracemalloc
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leyden_contracts import Task, TaskInput, TaskUpload
from leyden_storage.uploads import MAX_PART_BYTES, MAX_PART_LINES
from leyden_task_api.problems import ProblemError
from leyden_task_api.upload import Spool, spool_lines

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
MIB = 2**20


async def chunks(body: bytes, cuts: list[int]) -> AsyncIterator[bytes]:
    edges = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    for start, end in itertools.pairwise(edges):
        yield body[start:end]


async def stream(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


@settings(max_examples=30)
@given(st.lists(JSON, max_size=5), st.lists(st.integers(0, 10**6), max_size=6), st.booleans(), st.booleans())
async def test_every_task_is_in_the_parts_in_order(inputs: list, cuts: list[int], end: bool, bom: bool) -> None:
    body = b"\n".join(json.dumps({"input": value}).encode() for value in inputs) + b"\n" * end
    with Spool(TaskUpload()) as spool:
        await spool_lines(chunks(b"\xef\xbb\xbf" * bom + body, [*cuts, 1, 2] if bom else cuts), spool)
        assert spool.faults == [] and spool.groups == len(inputs)
        lines = b"".join(spool.parts()).splitlines()
    assert [Task.model_validate_json(line) for line in lines] == [Task.of(TaskInput(input=value)) for value in inputs]


async def test_parts_are_bounded_in_lines_and_in_bytes() -> None:
    inputs = ["s" * 10] * 20_001 + ["l" * (MIB - 40)] * 9
    body = (json.dumps({"input": text}).encode() + b"\n" for text in inputs)
    with Spool(TaskUpload()) as spool:
        await spool_lines(stream(body), spool)
        parts = list(spool.parts())
        assert spool.part_lines == [part.count(b"\n") for part in parts]
    assert spool.part_lines[:2] == [MAX_PART_LINES] * 2
    assert all(len(part) <= MAX_PART_BYTES and part.endswith(b"\n") for part in parts)
    assert len(parts) == 4
    assert [json.loads(line)["input"] for line in b"".join(parts).splitlines()] == inputs


async def test_an_endless_line_does_not_fill_the_memory() -> None:
    pieces = itertools.chain(itertools.repeat(b"a" * 65536, 150), [b'\n{"input": 1}\n'])
    with Spool(TaskUpload(), MIB) as spool:
        tracemalloc.start()
        await spool_lines(stream(pieces), spool)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 * MIB
        assert spool.faults == [f"line 1: longer than {MIB} bytes"]


async def test_memory_holds_one_part_on_the_way_in_and_one_on_the_way_out() -> None:
    line = json.dumps({"input": "x" * 4000}).encode() + b"\n"
    with Spool(TaskUpload()) as spool:
        tracemalloc.start()
        await spool_lines(stream(itertools.repeat(line * 16, 1000)), spool)
        inwards = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        assert sum(len(part) for part in spool.parts()) > 60 * MIB
        outwards = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert inwards < 4 * MIB
    # While the next part is read the last one is still the loop's.
    assert outwards < 2 * MAX_PART_BYTES + MIB


def digest(body: bytes, asked: TaskUpload | None = None) -> str:
    with Spool(asked or TaskUpload(samples=2)) as spool:
        spool.add_document(body)
        assert not spool.faults
        return spool.digest()


def test_the_digest_is_of_the_question_and_the_tasks_but_not_of_the_spelling() -> None:
    others = [
        digest(b'{"input": 1}'),
        digest(b'{"input": 2}'),
        digest(b'[{"input": 1}, {"input": 1}]'),
        digest(b'{"input": 1}', TaskUpload(samples=3)),
        digest(b'{"input": 1}', TaskUpload(purpose="eval", samples=2)),
        digest(b'{"input": 1}', TaskUpload(purpose="eval", samples=2, policy_version=0)),
    ]
    assert len(set(others)) == len(others)
    assert digest(b'[ {"tags":{}, "input":1, "expected": null } ]') == others[0]


def test_a_stored_task_fits_into_a_part() -> None:
    with Spool(TaskUpload()) as spool:
        # Stored, each of these numbers takes 19 bytes.
        spool.add_document(b'[{"input": [' + b"1e15," * 500_000 + b"1]}]")
        assert spool.faults == [f"task 1: longer than {MAX_PART_BYTES} bytes when stored"]


def test_a_full_disk_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with Spool(TaskUpload()) as spool:

        def full(_: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(spool._file, "write", full)
        spool.add_line(1, b'{"input": 1}')
        with pytest.raises(ProblemError, match="No space left on device") as refusal:
            spool.digest()
    assert refusal.value.status_code == 507
