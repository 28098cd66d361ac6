"""Leyden's services, and a scripted model behind the gateway, for agents of other environments."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import scripted_engine
from support.agent_stage import Stage, stage_in
from support.servers import find_port, process, wait_for
from support.worker import answers


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the trajectories into the page that shows them")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the scripted model: a replica, or a provider of somebody else's."""
    port, log = find_port(), tmp_path_factory.mktemp("model") / "model.log"
    with process([sys.executable, str(Path(scripted_engine.__file__)), str(port)], log):
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: answers(f"{url}/healthz"), 60, "the scripted model")
        yield url


@pytest.fixture(scope="module")
def stage(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage_in(tmp_path_factory.mktemp("stage"), model) as stage:
        yield stage
