"""A tiny random model, adapters for it, and the engine's inner parts on top."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from leyden_engine.adapter_files import read_adapter
from leyden_engine.lora import Adapter
from leyden_engine.network import Network, load_network
from leyden_engine.scheduler import Scheduler
from leyden_engine.text import Text, load_text
from support.tiny_model import make_adapter, make_model

ROWS, KEPT = 6, 6


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return make_model(tmp_path_factory.mktemp("engine") / "model")


@pytest.fixture(scope="session")
def adapter_folders(model_folder: Path) -> dict[str, Path]:
    """Three adapters that differ in rank, in the layers they change, and in how their weights are scaled."""
    folder = model_folder.parent
    return {
        "all": make_adapter(model_folder, folder / "all", seed=1, rank=4),
        "some": make_adapter(model_folder, folder / "some", seed=2, rank=8, target_modules=["q_proj", "down_proj"]),
        "rs": make_adapter(model_folder, folder / "rs", seed=3, rank=2, use_rslora=True),
    }


@pytest.fixture
def network(model_folder: Path) -> Network:
    return load_network(model_folder, ROWS + KEPT, "cpu", "float32", threads=1)


@pytest.fixture
def adapters(network: Network, adapter_folders: dict[str, Path]) -> dict[str, Adapter]:
    return {
        name: read_adapter(folder, name, network.layers, network.dtype, network.device)
        for name, folder in adapter_folders.items()
    }


@pytest.fixture(scope="session")
def text(model_folder: Path) -> Text:
    return load_text(model_folder)


@pytest.fixture
def make_scheduler(network: Network, text: Text) -> Iterator[Callable[..., Scheduler]]:
    made: list[Scheduler] = []

    def make(rows: int = ROWS, kept: int = KEPT, waiting: int = 1000) -> Scheduler:
        made.append(Scheduler(network, text, rows, kept, waiting))
        return made[-1]

    yield make
    for scheduler in made:
        if scheduler.alive:
            scheduler.stop()
