"""One fleet for all fault cases; each case gets it whole, whatever the one before did to it."""

from collections.abc import Iterator

import pytest

from support.faults import Fleet, fleet_in


@pytest.fixture(scope="session")
def session_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet_in(tmp_path_factory.mktemp("fleet")) as fleet:
        yield fleet


@pytest.fixture
def fleet(session_fleet: Fleet) -> Iterator[Fleet]:
    session_fleet.mend()
    yield session_fleet
