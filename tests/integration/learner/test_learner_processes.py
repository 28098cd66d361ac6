"""Two processes on the CPU (gloo) make the step that one makes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from leyden_learner.critics import CRITIC
from leyden_learner.trainer import ADAPTER, OPTIMIZER
from support import learner_process
from support.three_calls import take_critic_steps

LIMITS = {"many passes": 300, "one pass": 8192}
SHARDED = 64


@pytest.fixture(scope="module")
def both(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where two processes wrote."""
    out = tmp_path_factory.mktemp("both")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", learner_process.__file__]
    done = subprocess.run(
        [sys.executable, *launcher, str(tiny_llama), str(out), *map(str, LIMITS.values()), f"{SHARDED}+fsdp2"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def metrics(folder: Path) -> list:
    return json.loads((folder / "metrics").read_text())


def check_same(alone: Path, first: Path, second: Path) -> None:
    """Check that two processes made what one makes, and both the same."""
    assert [metrics(folder)[0] for folder in (alone, first, second)] == [1, 2, 2]
    expected, found = load_file(alone / "gradient"), load_file(first / "gradient")
    assert expected.keys() == found.keys()
    for name, gradient in expected.items():
        assert torch.allclose(found[name], gradient, atol=1e-5, rtol=1e-3), name
    for one, other in zip(metrics(alone)[1:], metrics(first)[1:], strict=True):
        wanted = {name: value for name, value in one.items() if name != "seconds"}
        assert {name: other[name] for name in wanted} == pytest.approx(wanted, abs=1e-5, rel=1e-4)
    # Both go on from the very same version, whoever writes it.
    for file in (ADAPTER, OPTIMIZER):
        assert (first / file).read_bytes() == (second / file).read_bytes()


def test_two_processes_have_the_critic_of_one(both: Path, tiny_llama: Path, tmp_path: Path):
    alone = take_critic_steps(tiny_llama, tmp_path)
    first, second = (both / f"critic-{rank}" for rank in range(2))

    assert [metrics(folder)[0] for folder in (alone, first, second)] == [1, 2, 2]
    assert metrics(first)[2]["explained_variance"] == pytest.approx(metrics(alone)[2]["explained_variance"], abs=1e-4)
    for name, one in load_file(alone / CRITIC).items():
        assert torch.allclose(load_file(first / CRITIC)[name], one, atol=1e-5, rtol=1e-4), name
    for file in (ADAPTER, OPTIMIZER, CRITIC):
        assert (first / file).read_bytes() == (second / file).read_bytes()


@pytest.mark.parametrize("passes", LIMITS)
def test_two_processes_make_the_gradients_of_one(both: Path, tiny_llama: Path, tmp_path: Path, passes: str):
    limit = LIMITS[passes]
    alone = learner_process.take_steps(tiny_llama, tmp_path, limit)

    check_same(alone, *(both / f"{limit}-{rank}" for rank in range(2)))


def test_with_sharded_layers_they_do_so_too_and_keep_half_of_them(both: Path, tiny_llama: Path, tmp_path: Path):
    alone = learner_process.take_steps(tiny_llama, tmp_path, SHARDED, frozen_passes=True)
    parts = [both / f"{SHARDED}-{rank}" for rank in range(2)]

    check_same(alone, *parts)
    (whole, _), *shards = (json.loads((folder / "shard").read_text()) for folder in (alone, *parts))
    layers = 2 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 96 + 2 * 32)
    assert [kept for kept, _ in shards] == [whole - layers // 2] * 2
    # One of them has a pass less.
    assert sorted(idle for _, idle in shards) == [0, 1]
