"""Files on disk: only whole, checked ones, under paths that are never used twice for different bytes."""

import os
from pathlib import Path

import pytest

from leyden_adapter_loader.cache import FILES, BadAdapter, Cache
from leyden_adapter_loader.names import Adapter, BadName
from leyden_storage import LocalStore, ObjectNotFound
from leyden_storage.keys import adapter_prefix
from support.replica import ROLE, RUN, files_of, manifest_of, name_of, store_version


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def cache(root: Path) -> Cache:
    return Cache(root, files_grace_s=60)


def test_fetches_what_a_replica_needs_and_nothing_else(cache: Cache, store: LocalStore, root: Path) -> None:
    folder = cache.fetch(store, store_version(store, 1, 0.5), fresh=False)
    assert folder.parent == root
    assert folder.name.startswith(f"{name_of(1)}-")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {name: files_of(0.5)[name] for name in FILES}
    assert cache.names() == {name_of(1)}
    assert [path.name for path in root.iterdir()] == [folder.name], "no partial folder is left"


def test_sound_files_are_used_again_and_fresh_ones_get_a_new_path(cache: Cache, store: LocalStore) -> None:
    manifest = store_version(store, 1, 0.5)
    first = cache.fetch(store, manifest, fresh=False)
    assert cache.fetch(store, manifest, fresh=False) == first
    assert cache.fetch(store, manifest, fresh=True) != first
    assert first.is_dir(), "a replica may have it open"


def test_other_bytes_get_another_path(cache: Cache, store: LocalStore) -> None:
    first = cache.fetch(store, store_version(store, 1, 0.5), fresh=False)
    assert cache.fetch(store, store_version(store, 1, 0.6), fresh=False) != first


def test_damaged_files_are_left_alone_and_fetched_anew(cache: Cache, store: LocalStore) -> None:
    manifest = store_version(store, 1, 0.5)
    first = cache.fetch(store, manifest, fresh=False)
    (first / FILES[1]).write_bytes(b"rotten")
    second = cache.fetch(store, manifest, fresh=False)
    assert second != first
    assert (second / FILES[1]).read_bytes() == files_of(0.5)[FILES[1]]
    assert (first / FILES[1]).read_bytes() == b"rotten"


@pytest.mark.parametrize("name", FILES)
def test_one_changed_byte_is_refused(cache: Cache, store: LocalStore, root: Path, name: str) -> None:
    manifest = store_version(store, 1, 0.5)
    data = bytearray(files_of(0.5)[name])
    data[-1] ^= 1
    store.put(adapter_prefix(RUN, ROLE, 1) + name, bytes(data))
    with pytest.raises(BadAdapter, match=f"{name} has sha256"):
        cache.fetch(store, manifest, fresh=False)
    assert list(root.iterdir()) == []


def test_a_missing_file_is_refused(cache: Cache, store: LocalStore) -> None:
    with pytest.raises(ObjectNotFound):
        cache.fetch(store, manifest_of(1, 0.5), fresh=False)
    manifest = manifest_of(1, 0.5, files={FILES[0]: b"{}"})
    with pytest.raises(BadAdapter, match=FILES[1]):
        cache.fetch(store, manifest, fresh=False)


@pytest.mark.parametrize("name", ["../evil", "a/b", "..", ".hidden", "a..b", "", "a\nb"])
def test_odd_file_names_are_refused(cache: Cache, store: LocalStore, root: Path, name: str) -> None:
    manifest = manifest_of(1, 0.5, files={**files_of(0.5), name: b"x"})
    with pytest.raises(BadAdapter, match="no plain file name"):
        cache.fetch(store, manifest, fresh=False)
    assert list(root.iterdir()) == []


@pytest.mark.parametrize(
    ("run", "role", "version"),
    [
        ("../up", ROLE, 1),
        ("a/b", ROLE, 1),
        ("..", ROLE, 1),
        (RUN, "../role", 1),
        (RUN, "a-b", 1),
        (RUN, ROLE, 0),
        (RUN, ROLE, -1),
        ("", ROLE, 1),
        (RUN + "\n", ROLE, 1),
    ],
)
def test_odd_adapter_names_are_refused(
    cache: Cache, store: LocalStore, root: Path, run: str, role: str, version: int
) -> None:
    with pytest.raises(BadName):
        Adapter(run, role, version)
    forged = manifest_of(1, 0.5).model_copy(update={"run": run, "role": role, "version": version})
    with pytest.raises(BadName):
        cache.fetch(store, forged, fresh=False)
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("name", ["tiny", "run-a--policy--v", "run-a--policy--v01", "run-a--v1", "../a--policy--v1"])
def test_names_that_leyden_never_gives_are_nobodys(name: str) -> None:
    assert Adapter.parse(name) is None


def test_names_are_parsed_back() -> None:
    for adapter in (Adapter("run-a", "policy", 12), Adapter("a--b", "x_y", 1), Adapter("a-", "p", 999)):
        assert Adapter.parse(adapter.name) == adapter


def test_delete_takes_one_adapter_only(cache: Cache, store: LocalStore, root: Path) -> None:
    for version in (1, 11):
        cache.fetch(store, store_version(store, version, 0.5), fresh=False)
    (root / "somebody-elses").mkdir()
    cache.delete(name_of(1))
    assert cache.names() == {name_of(11)}
    assert (root / "somebody-elses").is_dir()


def test_repeated_attempts_do_not_fill_the_disk(store: LocalStore, root: Path) -> None:
    cache = Cache(root, files_grace_s=60)
    manifest = store_version(store, 1, 0.5)
    for _ in range(5):
        os.utime(cache.fetch(store, manifest, fresh=True), (0, 0))
    assert len(list(root.iterdir())) == 1


def test_what_a_killed_loader_left_half_written_goes(store: LocalStore, root: Path) -> None:
    (root / ".partial-x").mkdir(parents=True)
    assert Cache(root, 60).names() == set()
    assert list(root.iterdir()) == []
