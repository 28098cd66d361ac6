"""A warm pool on the test's own agents."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from leyden_runtime.tokens import Tokens
from leyden_worker.environment import Environments
from leyden_worker.warm_pool import WarmPool

AGENTS = Path(__file__).parent / "agents"


@pytest.fixture
def environments(signing_key: str) -> Environments:
    inherited = {"PATH": "/usr/bin:/bin", "SEARCH_KEY": "mine", "LEYDEN_SIGNING_KEY": signing_key}
    return Environments("http://gateway:8100", "http://collector:4318/", Tokens(signing_key), inherited)


@pytest.fixture
async def pool(environments: Environments, tmp_path: Path) -> AsyncIterator[WarmPool]:
    pool = WarmPool(environments, [AGENTS, tmp_path], import_timeout_s=30, size=8)
    yield pool
    await pool.close()
