"""Trajectories in batches: what goes in comes out, whatever it is, in the same bytes each time."""

import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leyden_contracts import Signal, Step, TextCall, Trajectory, Transition, Verdict
from leyden_storage.trajectories import Detail, UnreadableBatch, decode_batch, encode_batch
from leyden_storage.trajectories.id_columns import join_ids, split_ids
from leyden_storage.trajectories.prefixes import Merged, merge_prompts, restore_prompts

TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
IDS = st.lists(st.integers(0, 3), max_size=12)
"""Few different tokens: prompts share prefixes by chance."""
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
SPANS = st.text("0123456789abcdef", min_size=16, max_size=16)


def packed(ids: Sequence[int]) -> bytes:
    return np.asarray(ids, "<i4").tobytes()


@st.composite
def calls(draw: st.DrawFn, episode: str, attempt: int) -> tuple[Transition, ...]:
    """Calls of which some go on from an earlier one, whole or cut."""
    made: list[Transition] = []
    for number in range(1, draw(st.integers(0, 5)) + 1):
        prompt = packed(draw(IDS))
        if made and draw(st.booleans()):
            base = draw(st.sampled_from(made))
            cut = draw(st.integers(0, 30)) * 4
            prompt = (base.prompt_token_ids + base.response_token_ids)[:cut] + prompt
        response = draw(IDS)
        made.append(
            Transition(
                run="r",
                episode=episode,
                attempt=attempt,
                number=number,
                role=draw(st.sampled_from(["writer", "checker"])),
                policy_version=draw(st.integers(0, 2**31 - 1)),
                prompt_token_ids=prompt,
                response_token_ids=packed(response),
                response_logprobs=np.asarray(draw(st.lists(FLOATS, max_size=3)), "<f8").tobytes(),
                temperature=draw(FLOATS),
                finish_reason=draw(TEXTS),
                response_id=draw(TEXTS),
                replica=draw(TEXTS),
                start_ns=draw(st.integers(0, 2**63 - 1)),
                parent=draw(st.just("") | SPANS),
                agent=draw(TEXTS),
                end_ns=draw(st.integers(0, 2**63 - 1)),
            )
        )
    return tuple(made)


@st.composite
def trajectories(draw: st.DrawFn) -> list[Trajectory]:
    made = []
    for index in range(draw(st.integers(0, 4))):
        attempt = draw(st.integers(1, 2**40))
        texts = [TextCall(span=draw(SPANS), messages=draw(TEXTS), reply="[]")] if draw(st.booleans()) else []
        steps = [Step(kind="tool", name=draw(TEXTS), span=draw(SPANS), failed=True)] if draw(st.booleans()) else []
        made.append(
            Trajectory(
                run="r",
                group="g",
                episode=f"g.{index}",
                task="t",
                attempt=attempt,
                purpose=draw(st.sampled_from(["train", "eval"])),
                reward=draw(FLOATS),
                rewards=draw(st.dictionaries(TEXTS, FLOATS, max_size=2)),
                verdict=draw(st.sampled_from(Verdict)),
                transitions=draw(calls(f"g.{index}", attempt)),
                output=draw(JSON),
                steps=steps,
                signals=[Signal(call=1, name=draw(TEXTS), value=draw(FLOATS))] if draw(st.booleans()) else [],
                texts=texts,
            )
        )
    return made


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(trajectories())
def test_what_goes_in_comes_out(batch: list[Trajectory]) -> None:
    data = encode_batch(batch)
    assert encode_batch(batch) == data
    assert decode_batch(data) == batch
    assert decode_batch(data, wanted="g.1".__eq__) == batch[1:2]
    heads = [one.model_copy(update={"transitions": ()}) for one in batch]
    assert decode_batch(data, Detail.HEADS) == heads
    nothing = {"prompt_token_ids": b"", "response_token_ids": b"", "response_logprobs": b""}
    bare = [tuple(call.model_copy(update=nothing) for call in one.transitions) for one in batch]
    assert [one.transitions for one in decode_batch(data, Detail.CALLS)] == bare


def test_an_output_that_json_alone_cannot_say(batch_of_one: Trajectory) -> None:
    odd = batch_of_one.model_copy(update={"output": ["\ud800", float("inf")]})
    assert decode_batch(encode_batch([odd])) == [odd]


@given(st.lists(st.tuples(IDS, IDS), max_size=6))
def test_the_longest_common_prefix_is_found(asked: list[tuple[list[int], list[int]]]) -> None:
    given_calls = [(packed(prompt), packed(response)) for prompt, response in asked]
    merged = merge_prompts(given_calls)
    assert restore_prompts(merged, [response for _, response in given_calls]) == [prompt for prompt, _ in given_calls]
    for number, (prompt, _) in enumerate(asked):
        shared = [common(prompt, [*before, *answer]) for before, answer in asked[:number]]
        assert merged[number].shared == max(shared, default=0)
        if merged[number].shared:
            assert shared[merged[number].base - 1] == merged[number].shared
            assert merged[number].shared not in shared[merged[number].base :], "of several, the latest"


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens at the start are the same, the slow way."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


def test_turns_that_go_on_are_stored_once() -> None:
    first, second = packed(range(600)), packed(range(1000, 1256))
    third = packed([*range(600), *range(1000, 1256), 7, 8])
    merged = merge_prompts([(first, second), (third, b"")])
    assert merged == [Merged(0, 0, first), Merged(1, 856, packed([7, 8]))]


def test_a_base_that_comes_later_is_refused() -> None:
    with pytest.raises(ValueError, match="call 1 goes on from call 1"):
        restore_prompts([Merged(1, 1, b"")], [b""])


@pytest.fixture
def batch_of_one() -> Trajectory:
    head = {"run": "r", "group": "g", "episode": "g.0", "task": "t", "attempt": 1, "purpose": "train"}
    return Trajectory(**head, reward=1.0, verdict=Verdict.COMPLETE, transitions=())


def parquet(metadata: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, pa.schema([("a", pa.int32())])) as writer:
        writer.add_key_value_metadata(metadata)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "cannot be read"),
        (b"PAR1 and no more", "cannot be read"),
        (parquet({}), "no batch of trajectories"),
        (parquet({"leyden.trajectories": "1"}), "of format '1', and this version of Leyden reads format '3'"),
        (parquet({"leyden.trajectories": "3"}), "cannot be read"),
    ],
)
def test_what_cannot_be_read_says_why(data: bytes, said: str) -> None:
    with pytest.raises(UnreadableBatch, match=said):
        decode_batch(data)


def test_garbled_tokens_are_noticed(batch_of_one: Trajectory) -> None:
    random = np.random.default_rng(0)
    call = {"run": "r", "episode": "g.0", "attempt": 1, "number": 1, "role": "policy", "policy_version": 0}
    step = Transition(
        **call,
        prompt_token_ids=random.bytes(4000),
        response_token_ids=b"",
        response_logprobs=b"",
        temperature=1.0,
        finish_reason="stop",
        response_id="x",
        replica="a",
    )
    data = bytearray(encode_batch([batch_of_one.model_copy(update={"transitions": (step,)})]))
    at = data.index(step.prompt_token_ids[400:480:4])  # low bytes
    data[at : at + 200] = bytes(200)
    with pytest.raises(UnreadableBatch):
        decode_batch(bytes(data))


@given(st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5), max_size=5))
def test_split_ids_are_joined_again(asked: list[list[int]]) -> None:
    pieces = [packed(ids) for ids in asked]
    columns = split_ids(pieces)
    assert join_ids(columns) == pieces
    assert join_ids([column.slice(1) for column in columns]) == pieces[1:]


def test_half_an_id_is_refused() -> None:
    with pytest.raises(ValueError, match="no multiple of 4"):
        split_ids([packed([1]), b"ab", b"cd"])


def test_parts_that_do_not_fit_each_other_are_refused() -> None:
    low, _, high, top = split_ids([packed([1, 2]), packed([3])])
    _, other, *_ = split_ids([packed([256]), packed([2, 3])])
    with pytest.raises(ValueError, match="differ in length"):
        join_ids([low, other, high, top])
    with pytest.raises(ValueError, match="differ in length"):
        join_ids([pa.array([None], pa.binary())] * 4)


def test_a_part_that_is_0_throughout_takes_no_room() -> None:
    columns = split_ids([packed([1, 70_000]), packed([]), packed([3])])
    assert [sum(map(len, column.to_pylist())) for column in columns] == [3, 3, 3, 0]
    assert join_ids(columns) == [packed([1, 70_000]), b"", packed([3])]


def test_every_page_is_checked(batch_of_one: Trajectory) -> None:
    """Half of the columns are stored as they are, or by a codec that has no checksum of its own."""
    random = np.random.default_rng(0)
    ids = random.integers(0, 150_000, 400).astype("<i4").tobytes()
    call = Transition(
        **{"run": "r", "episode": "g.0", "attempt": 1, "number": 1, "role": "policy", "policy_version": 0},
        prompt_token_ids=ids,
        response_token_ids=ids,
        response_logprobs=random.bytes(1600),
        temperature=1.0,
        finish_reason="stop",
        response_id="x",
        replica="a",
    )
    data = encode_batch([batch_of_one.model_copy(update={"transitions": (call,)})])
    for end in data_ends(data):
        broken = bytearray(data)
        broken[end - 1] ^= 1
        with pytest.raises(UnreadableBatch):
            decode_batch(bytes(broken))


def data_ends(data: bytes) -> list[int]:
    """Return where each column's last page ends."""
    columns = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).to_dict()["columns"]
    return [
        column["data_page_offset"] + column["total_compressed_size"]
        for column in columns
        if not column["has_dictionary_page"]
    ]
