"""The fast pass against the plain one: loss, logprobs and gradients of whole models."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from leyden_algorithms import TOKEN_LOSSES, Tokens
from leyden_contracts import LoraShape
from leyden_learner.compute import DEFAULT, Compute, Precision
from leyden_learner.forward import tree
from leyden_learner.policy import Policy, UnknownModel
from leyden_learner.samples import Sample
from support.forest import make_samples

PADDED = Compute(shared_prefixes=False)
SHAPE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "pad_token_id": 0,
}
FITTING = [
    ("llama", {}),
    ("llama", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}),
    ("qwen2", {}),
    ("qwen3", {}),
    ("mistral", {"sliding_window": None}),
    ("gemma", {"num_key_value_heads": 4}),
]
UNFITTING = [
    ("mistral", {"sliding_window": 16}, "sliding"),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}, "sliding"),
    ("gemma2", {}, "'gemma2'"),
    ("gpt2", {}, "'gpt2'"),
    ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, "rotary"),
]


def save_model(folder: Path, kind: str, **changes: Any) -> Path:
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SHAPE | changes)).save_pretrained(folder)
    return folder


def make_policy(folder: Path, compute: Compute = DEFAULT) -> Policy:
    policy = Policy(folder, "tiny", LoraShape(rank=4, alpha=8), 0, Accelerator(cpu=True), compute)
    generator = torch.Generator().manual_seed(5)
    for weight in policy.parameters.values():
        # Where B is zero, A has no gradient.
        weight.data += 0.1 * torch.randn(weight.shape, generator=generator)
    return policy


def step(policy: Policy, samples: list[Sample], limit: int = 100_000) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss, the logprobs by sample, and the gradient as one vector."""
    total, logprobs = torch.zeros(()), {}
    for part in policy.micro_batches(samples, limit):
        own = [samples[i] for i in part.samples]
        found = policy.response_logprobs(own)
        lengths = [one.response.numel() for one in own]
        advantages = torch.cat([torch.full((one.response.numel(),), one.advantage) for one in own])
        sampled = torch.cat([one.sampled_logprobs for one in own])
        tokens = Tokens(
            current_T=found,
            old_T=sampled,
            sampled_T=sampled,
            advantages_T=advantages,
            lengths_S=torch.tensor(lengths),
        )
        loss = TOKEN_LOSSES["ppo_clip"](tokens).sum()
        loss = loss / sum(one.response.numel() for one in samples)
        loss.backward()
        total += loss.detach()
        logprobs |= dict(zip(part.samples, found.detach().split(lengths), strict=True))
    gradient = torch.cat([weight.grad.flatten() for weight in policy.parameters.values()])
    for weight in policy.parameters.values():
        weight.grad = None
    return total, torch.cat([logprobs[i] for i in range(len(samples))]), gradient


def differences(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> list[float]:
    return [(a - b).abs().max().item() for a, b in zip(one, other, strict=True)]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("llama"), "llama")


@pytest.fixture(scope="module")
def ways(llama: Path) -> Iterator[dict[str, Policy]]:
    yield {"padded": make_policy(llama, PADDED), "shared": make_policy(llama)}


@pytest.mark.parametrize(("kind", "changes"), FITTING, ids=lambda one: one if isinstance(one, str) else None)
@pytest.mark.parametrize("turns", [1, 3])
def test_shared_prefixes_change_neither_loss_nor_gradient(tmp_path: Path, kind: str, changes: dict, turns: int):
    folder = save_model(tmp_path, kind, **changes)
    samples = make_samples(2, 3, turns=turns)
    with capture_logs() as logs:
        shared = make_policy(folder)

    found, expected = step(shared, samples), step(make_policy(folder, PADDED), samples)

    assert max(differences(found, expected)) < 1e-5
    assert expected[2].abs().max() > 1e-3
    assert [entry["event"] for entry in logs] == ["tree_attention_chosen"]


@given(
    prompts=st.integers(1, 3), group=st.integers(1, 4), turns=st.integers(1, 3), seed=st.integers(0, 99), data=st.data()
)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_padding_packing_and_sharing_are_one(
    ways: dict[str, Policy], prompts: int, group: int, turns: int, seed: int, data: st.DataObject
):
    samples = data.draw(st.permutations(make_samples(prompts, group, turns=turns, seed=seed)))
    limit = data.draw(st.integers(30, 600))
    padded, shared = (step(ways[name], samples, limit) for name in ("padded", "shared"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree.find_leaves, "__defaults__", (10_000,))
        patch.setattr(tree.plant, "__defaults__", (10_000,))
        packed = step(ways["shared"], samples, limit)

    assert max(differences(shared, padded)) < 1e-5
    assert max(differences(packed, padded)) < 1e-5


def test_in_float64_they_agree_to_the_last_digits(llama: Path):
    policies = [make_policy(llama, compute) for compute in (DEFAULT, PADDED)]
    for policy in policies:
        policy._peft.double()
    samples = make_samples(2, 4, turns=2)

    found, expected = (step(policy, samples) for policy in policies)

    # Not the loss: the advantages are float32.
    assert max(differences(found[1:], expected[1:])) < 1e-7


def test_one_token_may_be_prompt_and_response_at_two_temperatures(llama: Path):
    talk = torch.randint(64, (30,), generator=torch.Generator().manual_seed(1))
    # The second response holds the whole first one; the third call reads both as its prompt.
    samples = [
        Sample(talk[:12], torch.zeros(4), 0.5, 1.0),
        Sample(talk[:12], torch.zeros(9), 2.0, -1.0),
        Sample(talk, torch.zeros(6), 1.0, 0.3),
    ]

    found, expected = (step(make_policy(llama, compute), samples) for compute in (DEFAULT, PADDED))

    assert max(differences(found, expected)) < 1e-5


def test_entropies_are_those_of_the_whole_distribution(ways: dict[str, Policy]):
    samples = make_samples(2, 3)

    found, expected = (ways[name].response_scores(samples, entropy=True) for name in ("shared", "padded"))

    assert torch.allclose(found.entropy, expected.entropy, atol=1e-5)
    assert ways["shared"].response_scores(samples).entropy is None


@pytest.mark.parametrize(("kind", "changes", "reason"), UNFITTING)
def test_a_model_that_does_not_fit_is_computed_plainly_and_the_log_says_why(
    tmp_path: Path, kind: str, changes: dict, reason: str
):
    folder = save_model(tmp_path, kind, **changes)

    with capture_logs() as logs:
        policy = make_policy(folder)

    assert logs[0]["event"] == "prefixes_not_shared"
    assert reason in logs[0]["reason"]
    assert policy.response_logprobs(make_samples(1, 2)).isfinite().all()


@pytest.mark.parametrize("shared", [True, False])
def test_checkpointing_computes_the_same_and_keeps_less(llama: Path, shared: bool):
    samples = make_samples(2, 4)
    kept, results = [], []
    for checkpointing in (False, True):
        policy = make_policy(llama, Compute(gradient_checkpointing=checkpointing, shared_prefixes=shared))
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda one, to=sizes: to.append(one.numel()) or one, lambda x: x):
            policy.response_logprobs(samples)
        kept.append(sum(sizes))
        results.append(step(policy, samples))

    assert max(differences(*results)) < 1e-6
    assert kept[1] < kept[0] / 3


def test_a_model_without_checkpointing_refuses_it(llama: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("leyden_learner.policy.GradientCheckpointingLayer", torch.nn.Conv3d)

    with pytest.raises(UnknownModel, match="switch it off"):
        make_policy(llama, Compute(gradient_checkpointing=True))


def test_in_bfloat16_the_adapter_stays_in_float32_and_the_numbers_are_near(llama: Path, ways: dict[str, Policy]):
    samples = make_samples(2, 3)
    half = make_policy(llama, Compute(precision=Precision.BFLOAT16))

    found, expected = step(half, samples), step(ways["padded"], samples)

    assert {weight.dtype for weight in half.parameters.values()} == {torch.float32}
    assert half._peft.get_base_model().get_output_embeddings().weight.dtype == torch.bfloat16
    assert found[1].dtype == torch.float32
    assert 1e-6 < (found[1] - expected[1]).abs().mean() < 0.05
    assert torch.cosine_similarity(found[2], expected[2], dim=0) > 0.98
