"""The local directory as object store."""

import threading
from pathlib import Path

import pytest

from leyden_storage import LocalStore, ObjectNotFound, StoreError, open_store
from leyden_storage.keys import adapter_versions, batch_name, manifest_key, trajectory_batch_key


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
    assert store.size("a/x") == 10
    assert store.exists("a/x") and not store.exists("a/y") and not store.exists("a")
    for read in (store.get, store.size):
        with pytest.raises(ObjectNotFound):
            read("a/y")


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
        manifest_key("r", part, 1)


def test_batches_are_listed_in_the_order_in_which_they_were_made() -> None:
    made = [(0, 1), (0, 9), (0, 10), (1, 1), (2, 11)]
    keys = [trajectory_batch_key("r", batch_name(*one)) for one in made]
    assert keys == sorted(keys)
    assert keys[2] == "runs/r/trajectories/0000-000000010.parquet"


def test_versions_count_only_committed_ones(store: LocalStore) -> None:
    store.put(manifest_key("r", "policy", 10), b"{}")
    store.put(manifest_key("r", "policy", 2), b"{}")
    store.put("runs/r/adapters/policy/v3/adapter_model.safetensors", b"")
    assert adapter_versions(store, "r", "policy") == [2, 10]


@pytest.mark.parametrize("url", ["", "file://relative", "s3://bucket", "ftp://x", "s3://bucket?endpoint=host"])
def test_a_wrong_url_says_what_to_write(url: str) -> None:
    with pytest.raises(StoreError, match="use file:///"):
        open_store(url)


def test_open_local(tmp_path: Path) -> None:
    assert isinstance(open_store(f"file://{tmp_path}/s"), LocalStore)
