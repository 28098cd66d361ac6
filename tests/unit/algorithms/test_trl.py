"""The same batch through TRL 1.16.0, whose values `make_trl_reference.py` wrote down."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from leyden_algorithms import (
    AGGREGATIONS,
    COMPARISONS,
    TOKEN_LOSSES,
    Pairs,
    Tokens,
    Totals,
    dpo_loss,
    entropy_bonus,
    kl_loss,
)

FOLDER = Path(__file__).parent
TRL = json.loads((FOLDER / "data/trl.json").read_text())
INPUTS = TRL["inputs"]
LENGTHS = torch.tensor(INPUTS["lengths"])
TRL_EPSILON = 1e-4
"""What TRL adds to a deviation."""

constant = partial(AGGREGATIONS["constant"], length=INPUTS["longest"])
token_mean, sequence_mean = AGGREGATIONS["token_mean"], AGGREGATIONS["sequence_mean"]
LOSSES = {
    "grpo": ("ppo_clip", {}, sequence_mean),
    "grpo_dual_clip": ("ppo_clip", {"dual_clip": 1.3}, sequence_mean),
    "grpo_kl": ("ppo_clip", {}, sequence_mean),
    "grpo_unbiased_kl": ("ppo_clip", {}, sequence_mean),
    "grpo_entropy": ("ppo_clip", {}, sequence_mean),
    "bnpo": ("ppo_clip", {"clip_high": 0.28}, token_mean),
    "dr_grpo": ("ppo_clip", {}, constant),
    "dapo": ("dapo", {}, token_mean),
    "dapo_corrected": ("dapo", {}, token_mean),
    "gspo": ("gspo", {"clip_low": 0.1, "clip_high": 0.15}, sequence_mean),
    # TRL bounds the weight by epsilon_high itself, not by 1 + epsilon_high.
    "cispo": ("cispo", {"clip_high": 0.3}, token_mean),
}


def numbers(name: str) -> torch.Tensor:
    return torch.tensor(INPUTS[name])


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_gradients_are_trls(name: str):
    loss_name, options, aggregate = LOSSES[name]
    current, old = numbers("current").requires_grad_(), numbers("old")
    advantages = torch.repeat_interleave(numbers("advantages"), LENGTHS)
    tokens = Tokens(current_T=current, old_T=old, sampled_T=old, advantages_T=advantages, lengths_S=LENGTHS)
    totals = Totals(tokens=int(LENGTHS.sum()), samples=len(LENGTHS))

    losses = TOKEN_LOSSES[loss_name](tokens, **options)
    if name == "dapo_corrected":
        losses = losses * numbers("weights")
    if name.endswith("_kl"):
        losses = losses + 0.05 * kl_loss(tokens, numbers("base"), unbiased="unbiased" in name)
    loss = aggregate(losses, LENGTHS, totals)
    if name == "grpo_entropy":
        # TRL averages entropy over tokens, however it averages the rest.
        loss = loss + token_mean(entropy_bonus(numbers("entropies"), 0.02), LENGTHS, totals)
    loss.backward()

    assert loss.item() == pytest.approx(TRL["losses"][name]["loss"], abs=1e-5)
    assert current.grad.tolist() == pytest.approx(TRL["losses"][name]["gradient"], abs=1e-5)


def test_every_loss_that_was_recorded_is_compared():
    assert TRL["losses"].keys() == LOSSES.keys()
    assert len({round(one["loss"], 6) for one in TRL["losses"].values()}) == len(LOSSES) - 1  # bnpo is dapo here


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "gdpo"])
def test_advantages_are_trls(name: str):
    rewards = torch.tensor(INPUTS["rewards"])
    values = rewards if name == "gdpo" else rewards.sum(1)
    options = {"gdpo": {"weights": (1.0, 0.5), "epsilon": TRL_EPSILON}, "grpo": {"epsilon": TRL_EPSILON}}.get(name, {})

    found = COMPARISONS[name](values, torch.tensor([0] * 4 + [1] * 4), torch.arange(8), **options)

    assert found.tolist() == pytest.approx(TRL["advantages"][name], abs=1e-5)


def test_dpo_is_trls():
    chosen, rejected = numbers("chosen").requires_grad_(), numbers("rejected").requires_grad_()

    loss = dpo_loss(Pairs(chosen, rejected, numbers("base_chosen"), numbers("base_rejected")), beta=0.1).mean()
    loss.backward()

    assert loss.item() == pytest.approx(TRL["dpo"]["loss"], abs=1e-5)
    assert chosen.grad.tolist() + rejected.grad.tolist() == pytest.approx(TRL["dpo"]["gradient"], abs=1e-5)


@pytest.mark.slow
def test_trl_still_computes_what_was_written_down():
    script = FOLDER / "make_trl_reference.py"

    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, timeout=280)

    assert done.returncode == 0, done.stderr
