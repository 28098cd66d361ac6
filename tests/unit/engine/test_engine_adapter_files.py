"""An adapter is applied exactly, or refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from leyden_engine.adapter_files import AdapterMissing, AdapterUnusable, read_adapter
from leyden_engine.network import Network
from support.tiny_model import make_adapter, teacher_forced


@pytest.fixture
def copy(adapter_folders: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(adapter_folders["all"], tmp_path / "copy"))


def read(folder: Path, network: Network) -> object:
    return read_adapter(folder, "x", network.layers, network.dtype, network.device)


def configure(folder: Path, **changes: object) -> None:
    file = folder / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def reweigh(folder: Path, change: object) -> None:
    file = folder / "adapter_model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)


@pytest.mark.parametrize("name", ["all", "some", "rs"])
def test_logits_are_those_of_peft(name: str, network: Network, model_folder: Path, adapter_folders: dict) -> None:
    adapter = read_adapter(adapter_folders[name], name, network.layers, network.dtype, network.device)
    ids = list(range(3, 40))
    with torch.inference_mode():
        got = network.score(ids, adapter, 0)[:-1]
        base = network.score(ids, None, 0)[:-1]
    wanted = teacher_forced(model_folder, adapter_folders[name], ids[:1], ids[1:])
    assert torch.allclose(got, wanted, atol=1e-4)
    assert (got - base).abs().max() > 0.1


@pytest.mark.parametrize("file", ["adapter_config.json", "adapter_model.safetensors"])
def test_missing_files(file: str, copy: Path, network: Network) -> None:
    (copy / file).unlink()
    with pytest.raises(AdapterMissing):
        read(copy, network)


def test_corrupt_files(copy: Path, network: Network) -> None:
    weights = copy / "adapter_model.safetensors"
    whole = weights.read_bytes()
    for broken in (b"junk", b"", whole[:-10]):
        weights.write_bytes(broken)
        with pytest.raises(AdapterUnusable):
            read(copy, network)
    weights.write_bytes(whole)
    (copy / "adapter_config.json").write_text("{")
    with pytest.raises(AdapterUnusable):
        read(copy, network)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"r": 8}, "rank"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights"),
        pytest.param({"peft_type": "IA3"}, "LORA", marks=pytest.mark.filterwarnings("ignore:Unexpected keyword")),
    ],
)
def test_settings_that_are_not_applied_are_refused(changes: dict, word: str, copy: Path, network: Network) -> None:
    configure(copy, **changes)
    with pytest.raises(AdapterUnusable, match=word):
        read(copy, network)


def test_weights_that_do_not_fit_are_refused(copy: Path, network: Network) -> None:
    key = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    changes = {
        "only lora_B": lambda tensors: tensors.pop(key),
        "not finite": lambda tensors: tensors[key].fill_(torch.nan),
        "shapes": lambda tensors: tensors.update({key: torch.zeros(4, 3)}),
        "does not have": lambda tensors: tensors.update({key.replace("q_proj", "z_proj"): torch.zeros(4, 64)}),
        "not the weight": lambda tensors: tensors.update({"lm_head.weight": torch.zeros(2)}),
        "3 missing|2 missing|1 missing": lambda tensors: [tensors.pop(k) for k in list(tensors) if "1.mlp.up" in k],
    }
    original = (copy / "adapter_model.safetensors").read_bytes()
    for word, change in changes.items():
        (copy / "adapter_model.safetensors").write_bytes(original)
        reweigh(copy, change)
        with pytest.raises(AdapterUnusable, match=word):
            read(copy, network)


def test_an_adapter_of_another_model(tmp_path: Path, network: Network) -> None:
    from support.tiny_model import make_model

    other = make_model(tmp_path / "other", hidden=32)
    with pytest.raises(AdapterUnusable, match="shapes"):
        read(make_adapter(other, tmp_path / "adapter"), network)
