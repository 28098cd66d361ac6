"""A real S3 server gives the same promises as the local directory."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from leyden_storage import ObjectNotFound, ObjectStore, StoreError, open_store
from leyden_storage.keys import batch_name, trajectory_batch_key
from leyden_storage.trajectories import stored_heads, stored_trajectories, write_batch
from support.learning import RUN, make_call, make_trajectory


def test_create_has_one_winner(s3_store: ObjectStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        for key in range(5):
            wins = list(pool.map(lambda n, key=key: s3_store.create(f"a/{key}", str(n).encode()), range(8)))
            assert wins.count(True) == 1
            assert s3_store.get(f"a/{key}") == str(wins.index(True)).encode()


def test_a_repeated_create_of_the_same_bytes_is_ours(s3_store: ObjectStore) -> None:
    assert s3_store.create("a", b"x")
    assert s3_store.create("a", b"x"), "the reply to the first try may have been lost"
    assert not s3_store.create("a", b"y")


def test_read_back(s3_store: ObjectStore) -> None:
    s3_store.put("a/x", b"0123456789")
    assert s3_store.get("a/x") == b"0123456789"
    assert s3_store.get_range("a/x", 2, 3) == b"234"
    assert s3_store.size("a/x") == 10
    assert s3_store.exists("a/x") and not s3_store.exists("a/y")
    s3_store.put("a/b/y", b"")
    assert list(s3_store.list("a/")) == ["a/b/y", "a/x"]
    for read in (lambda: s3_store.get("no"), lambda: s3_store.get_range("no", 0, 1), lambda: s3_store.size("no")):
        with pytest.raises(ObjectNotFound):
            read()


def test_batches_are_read_by_range(s3_store: ObjectStore) -> None:
    random = np.random.default_rng(0)
    calls = [make_call("g.0", number, prompt=random.integers(0, 2**31 - 1, 100_000)) for number in (1, 2)]
    trajectory = make_trajectory("g", 0, 1.0, calls)
    assert write_batch(s3_store, RUN, batch_name(0, 1), [trajectory])
    assert not write_batch(s3_store, RUN, batch_name(0, 1), [])
    assert s3_store.size(trajectory_batch_key(RUN, batch_name(0, 1))) > 2**19
    assert list(stored_heads(s3_store, RUN)) == [trajectory.model_copy(update={"transitions": ()})]
    assert list(stored_trajectories(s3_store, RUN)) == [trajectory]


def test_delete(s3_store: ObjectStore) -> None:
    s3_store.put("gone/x", b"0")
    s3_store.delete("gone/x")
    s3_store.delete("gone/x")
    assert not s3_store.exists("gone/x")


def test_wrong_keys_and_dead_servers_are_store_errors(s3_endpoint: str) -> None:
    with pytest.raises(StoreError):
        open_store(f"s3://leyden-other?endpoint={s3_endpoint}", "nobody", "wrong")
    with pytest.raises(StoreError):
        open_store("s3://leyden-other?endpoint=http://127.0.0.1:9", "a", "b")
