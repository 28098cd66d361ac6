"""Fixtures shared by all tests: a real Redis, a real object store, a ledger on the first."""

import os
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis
from hypothesis import HealthCheck, settings

from leyden_ledger import Ledger
from leyden_storage import LocalStore, ObjectStore, open_store
from support.servers import S3_KEY, S3_SECRET, find_port, redis_server, s3_server

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# A slow machine is no failure.
settings.register_profile("leyden", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("leyden")


@pytest.fixture
def free_port() -> int:
    return find_port()


@pytest.fixture
def signing_key() -> str:
    return "test-signing-key-of-more-than-32-characters"


@pytest.fixture(scope="session")
def session_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture
def redis_url(session_redis: str) -> str:
    """An empty database of the session's server."""
    with redis.Redis.from_url(session_redis) as client:
        client.flushall()
    return f"{session_redis}/0"


@pytest.fixture
async def ledger(redis_url: str) -> AsyncIterator[Ledger]:
    ledger = Ledger.connect(redis_url)
    yield ledger
    await ledger.aclose()


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server(tmp_path_factory.mktemp("s3")) as endpoint:
        yield endpoint


@pytest.fixture
def s3_url(s3_endpoint: str) -> str:
    """A fresh bucket on the session's S3 server; its keys are in `support.servers`."""
    return f"s3://leyden-{secrets.token_hex(4)}?endpoint={s3_endpoint}"


@pytest.fixture
def s3_store(s3_url: str) -> ObjectStore:
    return open_store(s3_url, S3_KEY, S3_SECRET)
