"""The local directory as object store."""

import threading
from pathlib import Path

import pytest

from leyden_contracts import Trajectory, Transition, Verdict
from leyden_storage import LocalStore, ObjectNotFound, StoreError, open_store
from leyden_storage.keys import adapter_versions, manifest_key, trajectory_key
from leyden_storage.trajectories import (
    decode_trajectory,
    encode_trajectory,
    read_trajectory,
    stored_trajectories,
    write_trajectory,
)


def trajectory() -> Trajectory:
    call = {"run": "r", "episode": "g.0", "attempt": 2, "role": "policy", "policy_version": 3}
    step = Transition(
        **call,
        number=1,
        prompt_token_ids=b"\x01\0\0\0",
        response_token_ids=b"\x02\0\0\0",
        response_logprobs=b"\0\0\0\xbf",
        temperature=1.0,
        finish_reason="stop",
        response_id="x",
        replica="a",
    )
    head = {"run": "r", "group": "g", "episode": "g.0", "task": "t", "attempt": 2, "purpose": "train"}
    return Trajectory(**head, reward=0.1, rewards={"a": 0.1}, verdict=Verdict.COMPLETE, transitions=(step,))


def test_create_has_one_winner(store: LocalStore) -> None:
    wins = []
    threads = [
        threading.Thread(target=lambda n=n: wins.append(store.create("a/b", str(n).encode()))) for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wins.count(True) == 1
    assert list(store.list("a/")) == ["a/b"], "no temporary file is left or listed"


def test_read_back(store: LocalStore) -> None:
    store.put("a/x", b"0123456789")
    store.put("a/x", b"abcdefghij")
    assert store.get("a/x") == b"abcdefghij"
    assert store.get_range("a/x", 2, 3) == b"cde"
    assert store.exists("a/x") and not store.exists("a/y") and not store.exists("a")
    with pytest.raises(ObjectNotFound):
        store.get("a/y")


def test_delete(store: LocalStore) -> None:
    store.put("a/x", b"0")
    store.delete("a/x")
    store.delete("a/x")
    store.delete("no/folder")
    assert not store.exists("a/x")
    with pytest.raises(StoreError):
        store.delete("../x")


@pytest.mark.parametrize("key", ["../x", "/etc/passwd", "a/../../x"])
def test_keys_stay_inside(store: LocalStore, key: str) -> None:
    with pytest.raises(StoreError):
        store.put(key, b"")


@pytest.mark.parametrize("part", ["..", "a/b", "", "a..b", ".x"])
def test_key_parts_are_validated(part: str) -> None:
    with pytest.raises(ValueError, match="cannot be part"):
        trajectory_key("r", part, "e")


def test_versions_count_only_committed_ones(store: LocalStore) -> None:
    store.put(manifest_key("r", "policy", 10), b"{}")
    store.put(manifest_key("r", "policy", 2), b"{}")
    store.put("runs/r/adapters/policy/v3/adapter_model.safetensors", b"")
    assert adapter_versions(store, "r", "policy") == [2, 10]


def test_trajectory_survives_parquet(store: LocalStore) -> None:
    original = trajectory()
    assert decode_trajectory(encode_trajectory(original)) == original
    assert write_trajectory(store, original)
    assert not write_trajectory(store, original.model_copy(update={"reward": 9.0}))
    assert read_trajectory(store, "r", "g", "g.0") == original
    assert list(stored_trajectories(store, "r")) == [original]


@pytest.mark.parametrize("url", ["", "file://relative", "s3://bucket", "ftp://x", "s3://bucket?endpoint=host"])
def test_a_wrong_url_says_what_to_write(url: str) -> None:
    with pytest.raises(StoreError, match="use file:///"):
        open_store(url)


def test_open_local(tmp_path: Path) -> None:
    assert isinstance(open_store(f"file://{tmp_path}/s"), LocalStore)
