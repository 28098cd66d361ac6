"""However a file is cut into chunks on the wire, it is the same tasks at the same places."""

import itertools
import json
import tracemalloc
from collections.abc import AsyncIterator

from hypothesis import given, settings
from hypothesis import strategies as st

from leyden_contracts import Task, TaskInput, TaskUpload
from leyden_task_api.upload import MAX_LINE_BYTES, Spool, spool_lines

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


async def chunks(body: bytes, cuts: list[int]) -> AsyncIterator[bytes]:
    edges = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    for start, end in itertools.pairwise(edges):
        yield body[start:end]


@settings(max_examples=30, deadline=None)
@given(st.lists(JSON, max_size=5), st.lists(st.integers(0, 10**6), max_size=6), st.booleans())
async def test_every_task_is_found_at_its_place(inputs: list, cuts: list[int], newline_at_end: bool) -> None:
    body = b"\n".join(json.dumps({"input": value}).encode() for value in inputs) + b"\n" * newline_at_end
    with Spool(TaskUpload()) as spool:
        await spool_lines(chunks(body, cuts), spool)
        content = spool.content()
        assert spool.faults == []
        stored = [Task.model_validate_json(content[task.offset : task.offset + task.length]) for task in spool.tasks]
    assert stored == [Task.of(TaskInput(input=value)) for value in inputs]
    assert [task.id for task in spool.tasks] == [task.id for task in stored]


async def test_an_endless_line_does_not_fill_the_memory() -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(150):
            yield b"a" * 65536
        yield b'\n{"input": 1}\n'

    with Spool(TaskUpload()) as spool:
        tracemalloc.start()
        await spool_lines(endless(), spool)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 * MAX_LINE_BYTES
        assert spool.faults == [f"line 1: longer than {MAX_LINE_BYTES} bytes"]


async def test_what_was_asked_for_changes_the_digest() -> None:
    digests = set()
    for asked in (TaskUpload(samples=2), TaskUpload(samples=3), TaskUpload(purpose="eval", samples=2)):
        with Spool(asked) as spool:
            spool.add_document(b'{"input": 1}')
            digests.add(spool.digest)
    assert len(digests) == 3
