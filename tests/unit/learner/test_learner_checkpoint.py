"""A checkpoint is one commit."""

import pytest

from leyden_contracts import AdapterManifest
from leyden_learner.checkpoint import (
    CheckpointDamaged,
    CheckpointTaken,
    commit,
    committed,
    digests,
    read_files,
)
from leyden_storage import LocalStore, StoreError
from leyden_storage.keys import adapter_prefix, manifest_key
from support.learning import RUN

FILES = {"adapter_model.safetensors": b"weights", "rng.safetensors": b"numbers"}


def manifest(version: int = 1, files: dict[str, bytes] = FILES) -> AdapterManifest:
    return AdapterManifest(
        run=RUN,
        role="policy",
        version=version,
        parent=version - 1,
        files=digests(files),
        groups=[f"g{version}"],
        trained_episodes=[],
        skipped={},
        probes=[],
        metrics={},
        config={},
        created=0.0,
    )


class CrashingStore(LocalStore):
    """Fails at the `fail_at`-th write, as if the process died there; remembers the order of writes."""

    fail_at = -1

    def __init__(self, root) -> None:
        super().__init__(root)
        self.writes: list[str] = []

    def put(self, key: str, data: bytes) -> None:
        self._write_down(key)
        super().put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        self._write_down(key)
        return super().create(key, data)

    def _write_down(self, key: str) -> None:
        self.writes.append(key)
        if len(self.writes) == self.fail_at:
            raise StoreError("crash")


def test_the_manifest_is_written_last(tmp_path):
    store = CrashingStore(tmp_path)

    commit(store, [(manifest(), FILES)])

    assert store.writes[-1] == manifest_key(RUN, "policy", 1)
    assert len(store.writes) == 3
    assert committed(store, RUN, "policy") == [manifest()]
    assert read_files(store, manifest()) == FILES


@pytest.mark.parametrize("fail_at", [1, 2, 3])
def test_a_crash_before_the_manifest_leaves_no_version_and_can_be_repeated(tmp_path, fail_at: int):
    store = CrashingStore(tmp_path)
    store.fail_at = fail_at
    with pytest.raises(StoreError):
        commit(store, [(manifest(), FILES)])
    assert committed(store, RUN, "policy") == []
    other = FILES | {"adapter_model.safetensors": b"other weights"}

    commit(store, [(manifest(files=other), other)])

    assert read_files(store, committed(store, RUN, "policy")[-1]) == other


def test_a_committed_version_is_never_written_over(tmp_path):
    store = LocalStore(tmp_path)
    commit(store, [(manifest(), FILES)])

    with pytest.raises(CheckpointTaken):
        commit(store, [(manifest(), {"adapter_model.safetensors": b"late"})])

    assert read_files(store, committed(store, RUN, "policy")[0]) == FILES


def test_versions_come_back_in_numeric_order(tmp_path):
    store = LocalStore(tmp_path)
    for version in (10, 9, 2):
        commit(store, [(manifest(version), FILES)])

    assert [found.version for found in committed(store, RUN, "policy")] == [2, 9, 10]


def test_a_changed_byte_is_noticed(tmp_path):
    store = LocalStore(tmp_path)
    commit(store, [(manifest(), FILES)])
    store.put(adapter_prefix(RUN, "policy", 1) + "rng.safetensors", b"nvmbers")

    with pytest.raises(CheckpointDamaged, match=r"rng\.safetensors"):
        read_files(store, manifest())
