"""Reading a run's trajectories: by group, by time, by batch; and what is not read on the way."""

from collections.abc import Iterator

import numpy as np
import pytest

from leyden_contracts import Trajectory, Transition, Verdict
from leyden_storage import LocalStore, ObjectNotFound
from leyden_storage.keys import batch_name, trajectory_batch_key
from leyden_storage.trajectories import (
    BatchCache,
    Detail,
    read_batch,
    read_trajectory,
    stored_heads,
    stored_trajectories,
    write_batch,
)

SECOND = 10**9


def played(episode: str, start_s: float = 0, tokens: int = 4, calls: int = 1, attempt: int = 1) -> Trajectory:
    """Return an episode whose first call came at `start_s`."""
    random = np.random.default_rng(calls)
    steps = [
        Transition(
            run="r",
            episode=episode,
            attempt=attempt,
            number=number,
            role="policy",
            policy_version=0,
            prompt_token_ids=random.bytes(4 * tokens),
            response_token_ids=random.bytes(4),
            response_logprobs=bytes(4),
            temperature=1.0,
            finish_reason="stop",
            response_id=f"{episode}-{number}",
            replica="a",
            start_ns=int(start_s * SECOND) + number - 1,
        )
        for number in range(1, calls + 1)
    ]
    head = {"run": "r", "group": episode.rpartition(".")[0], "episode": episode, "task": "t", "attempt": attempt}
    return Trajectory(**head, purpose="train", reward=1.0, verdict=Verdict.COMPLETE, transitions=steps)


ALL = [played("a.0", 10), played("b.0", 20, calls=3), played("a.1", 30), played("b.1", calls=0), played("c.0", 40)]


@pytest.fixture
def kept(store: LocalStore) -> LocalStore:
    write_batch(store, "r", batch_name(0, 1), ALL[:2])
    write_batch(store, "r", batch_name(0, 2), [])
    write_batch(store, "r", batch_name(0, 3), ALL[2:])
    write_batch(store, "other", batch_name(0, 1), [played("z.0")])
    return store


def test_a_name_is_taken_once(kept: LocalStore) -> None:
    assert not write_batch(kept, "r", batch_name(0, 2), ALL)
    assert read_batch(kept, "r", batch_name(0, 2)) == []


def names(found: Iterator[Trajectory]) -> list[str]:
    return [one.episode for one in found]


def test_all_are_read_in_order(kept: LocalStore) -> None:
    assert list(stored_trajectories(kept, "r")) == ALL
    assert list(stored_heads(kept, "r")) == [one.model_copy(update={"transitions": ()}) for one in ALL]


@pytest.mark.parametrize("read", [stored_trajectories, stored_heads])
def test_by_group_and_by_time(kept: LocalStore, read: object) -> None:
    assert names(read(kept, "r", groups=["b"])) == ["b.0", "b.1"]
    assert names(read(kept, "r", groups=[])) == []
    assert names(read(kept, "r", since=20)) == ["b.0", "a.1", "b.1", "c.0"]
    assert names(read(kept, "r", until=30)) == ["a.0", "b.0", "b.1"]
    assert names(read(kept, "r", since=20, until=20 + 1 / SECOND, groups=["a", "b"])) == ["b.0", "b.1"]


def test_by_batch_and_episode(kept: LocalStore) -> None:
    assert read_trajectory(kept, "r", batch_name(0, 1), "b.0") == ALL[1]
    with pytest.raises(ObjectNotFound, match="a.1 is not in"):
        read_trajectory(kept, "r", batch_name(0, 1), "a.1")
    with pytest.raises(ObjectNotFound):
        read_trajectory(kept, "r", batch_name(0, 9), "a.1")


def test_after_a_recovery_the_highest_attempt_counts(kept: LocalStore) -> None:
    again = played("a.0", 50, attempt=1_000_001)
    write_batch(kept, "r", batch_name(1, 1), [again, played("d.0", 60)])
    assert names(stored_trajectories(kept, "r")) == ["b.0", "a.1", "b.1", "c.0", "a.0", "d.0"]
    assert list(stored_trajectories(kept, "r", groups=["a"])) == [ALL[2], again]


class CountingStore(LocalStore):
    """Counts the bytes that are read."""

    read = 0

    def get(self, key: str) -> bytes:
        data = super().get(key)
        self.read += len(data)
        return data

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        data = super().get_range(key, offset, length)
        self.read += len(data)
        return data


def test_heads_are_read_without_the_tokens(store: LocalStore) -> None:
    counting = CountingStore(store._root)
    large = [played(f"a.{index}", 1, tokens=5000, calls=index + 1) for index in range(20)]
    write_batch(counting, "r", batch_name(0, 1), large)
    whole = len(store.get(trajectory_batch_key("r", batch_name(0, 1))))
    assert whole > 2**20
    assert names(stored_heads(counting, "r")) == [one.episode for one in large]
    assert counting.read < whole / 10
    counting.read = 0
    assert [len(one.transitions) for one in read_batch(counting, "r", batch_name(0, 1), Detail.CALLS)] == [
        *range(1, 21)
    ]
    assert names(stored_trajectories(counting, "r", groups=["b"])) == []
    assert counting.read < whole / 5
    assert list(stored_trajectories(counting, "r", groups=["a"])) == large


def test_a_batch_that_holds_a_group_is_fetched_once(store: LocalStore) -> None:
    counting = CountingStore(store._root)
    for number in (1, 2, 3):
        write_batch(counting, "r", batch_name(0, number), [played(f"a.{number}", tokens=100)])
    cache = BatchCache(counting, "r", limit=1000)
    for _ in range(2):
        assert names(iter(cache.get(batch_name(0, 1)).values())) == ["a.1"]
        assert names(iter(cache.get(batch_name(0, 2)).values())) == ["a.2"]
    before = counting.read
    cache.get(batch_name(0, 3))
    cache.get(batch_name(0, 2))
    once = counting.read - before
    cache.get(batch_name(0, 1))
    assert counting.read - before > once, "the one that was used least recently was dropped"
