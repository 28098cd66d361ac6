"""When a version is whole on a replica."""

from leyden_adapter_loader.names import Adapter, whole

WANTED = [Adapter("b", "writer", 2), Adapter("a", "writer", 1), Adapter("a", "checker", 1), Adapter("a", "writer", 2)]


def test_a_version_is_whole_when_every_role_is_ready() -> None:
    ready = {"a--writer--v1", "a--checker--v1", "b--writer--v2"}
    assert whole(WANTED, ready) == [("a", 1), ("b", 2)]
    assert whole(WANTED, ready - {"a--writer--v1"}) == [("b", 2)]
    assert whole(WANTED, ready - {"a--checker--v1"}) == [("b", 2)]
