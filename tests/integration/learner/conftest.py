import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from support.learning import save_tiny_llama

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def environment(redis_url: str, tmp_path: Path, free_port: int, tiny_llama: Path) -> dict[str, str]:
    """Settings of a learner that is a process of its own."""
    return {
        "LEYDEN_REDIS_URL": redis_url,
        "LEYDEN_STORE_URL": f"file://{tmp_path / 'store'}",
        "LEYDEN_LEARNER_PORT": str(free_port),
        "LEYDEN_LEARNER_MODELS": f"tiny={tiny_llama}",
        "LEYDEN_LEARNER_DEVICE": "cpu",
        "LEYDEN_LEARNER_POLL_S": "0.05",
        "OMP_NUM_THREADS": "1",
    }


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
