"""What the loader remembers of a replica, moment by moment."""

import pytest

from leyden_adapter_loader.shelf import Pauses, Shelf


@pytest.fixture
def shelf() -> Shelf:
    return Shelf(Pauses(retire_grace_s=2, files_grace_s=60, retry_s=1, retry_most_s=5))


def test_only_what_is_wanted_loaded_and_proved_is_ready(shelf: Shelf) -> None:
    shelf.see(["a", "b"], ["b", "c"], 0)
    assert (shelf.ready, shelf.due(0)) == (set(), ["b", "c"])
    assert shelf.prove("b", shelf.life, 3) == 3
    assert (shelf.ready, shelf.due(0)) == ({"b"}, ["c"])


def test_a_proof_is_void_when_the_replica_no_longer_lists_the_name(shelf: Shelf) -> None:
    shelf.see([], ["a"], 0)
    shelf.prove("a", shelf.life, 0)
    shelf.see([], ["a"], 1)
    assert (shelf.ready, shelf.due(1)) == (set(), ["a"])


def test_a_proof_of_an_earlier_life_is_void(shelf: Shelf) -> None:
    shelf.see(["a"], ["a"], 0)
    life = shelf.life
    shelf.lost()
    shelf.see(["a"], ["a"], 1)
    assert shelf.prove("a", life, 1) is None
    assert shelf.withhold("a", life, "old news", 1) is None
    assert (shelf.ready, shelf.rejected) == (set(), {})


def test_lost_forgets_all_proofs(shelf: Shelf) -> None:
    shelf.see(["a"], ["a"], 0)
    shelf.prove("a", shelf.life, 0)
    shelf.lost()
    shelf.see(["a"], ["a"], 1)
    assert shelf.ready == set()


def test_what_is_withheld_is_tried_again_ever_later(shelf: Shelf) -> None:
    pauses = []
    for now in (0, 10, 20, 30, 40):
        shelf.see([], ["a"], now)
        assert shelf.due(now) == ["a"]
        pauses.append(shelf.withhold("a", shelf.life, "bad", now))
        assert shelf.due(now) == []
    assert pauses == [1, 2, 4, 5, 5]
    assert shelf.rejected == {"a": "bad"}
    assert shelf.due(45) == ["a"]


def test_a_version_that_nobody_wants_any_more_is_not_rejected(shelf: Shelf) -> None:
    shelf.see([], ["a"], 0)
    shelf.withhold("a", shelf.life, "bad", 0)
    shelf.see([], [], 1)
    assert shelf.rejected == {}


def test_unwanted_versions_are_unloaded_after_a_grace(shelf: Shelf) -> None:
    shelf.see(["a", "b"], ["a", "b"], 0)
    shelf.prove("a", shelf.life, 0)
    shelf.see(["a", "b"], ["b"], 10)
    assert (shelf.ready, shelf.to_unload(11.9)) == (set(), [])
    assert shelf.to_unload(12) == ["a"]
    shelf.keep("a", 12)
    assert shelf.to_unload(13.9) == []
    assert shelf.to_unload(14) == ["a"]


def test_a_version_wanted_again_within_the_grace_stays(shelf: Shelf) -> None:
    shelf.see(["a"], ["a"], 0)
    shelf.prove("a", shelf.life, 0)
    shelf.see(["a"], [], 1)
    shelf.see(["a"], ["a"], 2)
    assert shelf.ready == {"a"}
    shelf.see(["a"], [], 3)
    assert shelf.to_unload(4) == []


def test_files_go_long_after_the_unload(shelf: Shelf) -> None:
    shelf.see(["a"], [], 0)
    assert shelf.to_delete(["a"], 0) == shelf.to_delete(["a"], 100) == [], "it is loaded"
    shelf.unloaded("a")
    assert shelf.to_delete(["a"], 100) == []
    assert shelf.to_delete(["a"], 159) == []
    shelf.see([], ["a"], 159)
    assert shelf.to_delete(["a"], 161) == [], "it is wanted again"
    shelf.see([], [], 162)
    assert shelf.to_delete(["a"], 162) == []
    assert shelf.to_delete(["a"], 222) == ["a"]


def test_the_longest_wanted_comes_first(shelf: Shelf) -> None:
    shelf.see([], ["b"], 0)
    shelf.see([], ["a", "b"], 1)
    assert shelf.due(1) == ["b", "a"]
