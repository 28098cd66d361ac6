"""A model that this engine would run differently is refused at start."""

import json
from pathlib import Path

import pytest
import torch

from leyden_engine import attention, network
from leyden_engine.network import ModelUnusable, load_network
from leyden_engine.text import load_text
from support.tiny_model import make_model


def configure(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_model(tmp_path / "model", hidden=32, layers=1)


def test_folders_without_a_model(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelUnusable):
        load_network(tmp_path, 2, "cpu", "float32", threads=1)
    (folder / "model.safetensors").write_bytes(b"junk")
    with pytest.raises(ModelUnusable):
        load_network(folder, 2, "cpu", "float32", threads=1)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelUnusable, match="tokenizer"):
        load_text(folder)


def test_a_model_without_a_chat_template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ModelUnusable, match="chat template"):
        load_text(folder)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there(folder: Path) -> None:
    with pytest.raises(ModelUnusable, match="LEYDEN_ENGINE_DEVICE"):
        load_network(folder, 2, "cuda", "float32", threads=1)


def test_attention_that_is_not_full(folder: Path) -> None:
    configure(folder, layer_types=["sliding_attention"])
    with pytest.raises(ModelUnusable, match="sliding_attention"):
        load_network(folder, 2, "cpu", "float32", threads=1)


def test_a_model_that_gives_other_logits_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(*given: object, **more: object) -> tuple:
        out, weights = attention.grouped_attention(*given, **more)
        return out * 1.1, weights

    monkeypatch.setattr(network.attention, "NAME", "shifted_for_test")
    attention.AttentionInterface.register("shifted_for_test", shifted)
    with pytest.raises(ModelUnusable, match="other logits"):
        load_network(folder, 2, "cpu", "float32", threads=1)


def test_half_precision_runs(folder: Path) -> None:
    loaded = load_network(folder, 2, "cpu", "bfloat16", threads=1)
    assert loaded.dtype is torch.bfloat16
