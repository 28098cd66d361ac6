"""A task API with real Redis behind it, and ways to talk to it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from leyden_client import LeydenClient
from leyden_runtime.tokens import Scope, Tokens
from leyden_task_api.settings import TaskApiSettings
from support.task_api import task_api


@pytest.fixture
def settings(redis_url: str, tmp_path: Path, signing_key: str) -> TaskApiSettings:
    return TaskApiSettings.model_validate(
        {"redis_url": redis_url, "store_url": f"file://{tmp_path}/store", "signing_key": signing_key}
    )


@pytest.fixture
def token(signing_key: str) -> str:
    return Tokens(signing_key).mint(Scope.API, 600)


@pytest.fixture
def api(settings: TaskApiSettings) -> Iterator[str]:
    with task_api(settings) as url:
        yield url


@pytest.fixture
def http(api: str, token: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=api, headers={"Authorization": f"Bearer {token}"}, timeout=20) as client:
        yield client


@pytest.fixture
def client(api: str, token: str) -> Iterator[LeydenClient]:
    with LeydenClient(api, token, patience_s=5) as client:
        yield client
