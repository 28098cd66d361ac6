"""The optimizer step: its loss, its direction, and that its state is all in the checkpoint's files."""

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load

from leyden_learner.compute import Compute
from leyden_learner.policy import UnknownModel
from leyden_learner.samples import Sample
from leyden_learner.trainer import ADAPTER, ADAPTER_CONFIG, OPTIMIZER, Trainer
from support.forest import make_batch, make_samples
from support.learning import VOCABULARY, make_call, make_group, make_spec, make_trajectory


def make_trainer(folder: Path, **spec: object) -> Trainer:
    return Trainer(make_spec(**spec), folder, "cpu")


def groups(version: int = 0) -> list:
    return [make_group("a", (1, 0, 0, 0), version=version), make_group("b", (0, 1, 1, 0), version=version)]


def step(trainer: Trainer) -> dict[str, float]:
    return trainer.step(trainer.build_batch(groups(trainer.version)))["policy"]


def response_logprob(trainer: Trainer, prompt: tuple, response: tuple) -> float:
    return sum(trainer.policy.sequence_logprobs([*prompt, *response])[len(prompt) - 1 :])


def test_logprobs_agree_with_the_plain_pass_whatever_the_padding(tiny_llama: Path):
    trainer = make_trainer(tiny_llama)
    step(trainer)
    shapes = [(5, 3, 1.0), (1, 7, 0.7), (12, 1, 1.3), (2, 2, 1.0)]
    samples = [
        Sample(torch.randint(VOCABULARY, (prompt + answer,)), torch.zeros(answer), heat, 0.0)
        for prompt, answer, heat in shapes
    ]

    together = trainer.policy.response_logprobs(samples)

    alone = torch.cat([trainer.policy.response_logprobs([sample]) for sample in samples])
    assert torch.allclose(together, alone, atol=1e-5)
    plain = trainer.policy.sequence_logprobs(samples[0].tokens.tolist())[4:]
    assert together[:3].tolist() == pytest.approx(plain, abs=1e-5)


def test_turns_computed_together_have_the_logprobs_of_turns_apart(tiny_llama: Path):
    policy = make_trainer(tiny_llama).policy
    conversation = torch.randint(VOCABULARY, (20,))
    turns = [
        Sample(conversation[:end], torch.zeros(answer), heat, 0.0)
        for end, answer, heat in ((8, 3, 1.0), (14, 2, 0.5), (20, 4, 2.0))
    ]
    other = Sample(torch.randint(VOCABULARY, (9,)), torch.zeros(2), 1.0, 0.0)

    together = policy.response_logprobs([*turns, other])

    apart = [policy.response_logprobs([sample]) for sample in (*turns, other)]
    assert torch.allclose(together, torch.cat(apart), atol=1e-5)


def test_temperature_divides_the_logits(tiny_llama: Path):
    policy = make_trainer(tiny_llama).policy
    tokens = torch.tensor([3, 1, 4, 1, 5])
    with torch.no_grad():
        logits = policy._peft(input_ids=tokens[None]).logits[0]
    expected = (logits[3] / 0.5).log_softmax(-1)[5]

    found = policy.response_logprobs([Sample(tokens, torch.zeros(1), 0.5, 0.0)])

    assert found.item() == pytest.approx(expected.item())


def test_the_loss_is_the_token_level_mean_of_the_clipped_ratio(tiny_llama: Path):
    trainer = make_trainer(tiny_llama)
    prompt, answers = (1, 2, 3), [(4, 9), (5, 9, 7)]
    calls = [make_call(f"a.{i}", response=answer) for i, answer in enumerate(answers)]
    group = [make_trajectory("a", i, 1.0 - i, [call]) for i, call in enumerate(calls)]
    losses = []
    for answer, advantage in zip(answers, (math.sqrt(0.5), -math.sqrt(0.5)), strict=True):
        for logprob in trainer.policy.sequence_logprobs([*prompt, *answer])[2:]:
            ratio = math.exp(logprob + math.log(VOCABULARY))
            losses.append(-min(ratio * advantage, min(max(ratio, 0.8), 1.28) * advantage))

    metrics = trainer.step(trainer.build_batch([("a", group)]))["policy"]

    assert metrics["loss"] == pytest.approx(sum(losses) / 5, rel=1e-4)
    assert metrics["tokens"] == 5


def test_the_size_of_micro_batches_does_not_change_the_step(tiny_llama: Path):
    whole, parts = make_trainer(tiny_llama), make_trainer(tiny_llama, micro_batch_tokens=64)
    long = [make_group(name, (1, 0, 1, 0), prompt=tuple(range(1, 30))) for name in "ab"]

    metrics = [trainer.step(trainer.build_batch(long))["policy"] for trainer in (whole, parts)]

    assert metrics[0]["grad_norm"] == pytest.approx(metrics[1]["grad_norm"], rel=1e-4)
    assert metrics[0]["loss"] == pytest.approx(metrics[1]["loss"], abs=1e-5)


def test_shared_prefixes_make_the_step_that_padded_rows_make(tiny_llama: Path):
    batch = make_batch(make_samples(3, 4, turns=2, vocabulary=VOCABULARY))
    trainers = [
        Trainer(make_spec(learning_rate=1e-3), tiny_llama, "cpu", Compute(shared_prefixes=shared))
        for shared in (True, False)
    ]

    metrics = [[trainer.step(batch)["policy"] for _ in range(3)] for trainer in trainers]

    for one, other in zip(*metrics, strict=True):
        wanted = {name: value for name, value in other.items() if name != "seconds"}
        assert {name: one[name] for name in wanted} == pytest.approx(wanted, abs=1e-5, rel=1e-5)
    for name, weight in trainers[0].policy.parameters.items():
        assert torch.allclose(weight, trainers[1].policy.parameters[name], atol=1e-5), name


def test_the_same_step_twice_is_the_same_bit_for_bit(tiny_llama: Path):
    batch = make_batch(make_samples(3, 4, turns=2, vocabulary=VOCABULARY))
    trainers = [make_trainer(tiny_llama, micro_batch_tokens=256) for _ in range(2)]

    for trainer in trainers:
        trainer.step(batch)
        trainer.step(batch)

    assert trainers[0].files("policy") == trainers[1].files("policy")


def test_on_policy_the_ratio_is_one(tiny_llama: Path):
    trainer = make_trainer(tiny_llama)
    step(trainer)
    prompt, answers = (1, 2, 3), [(4, 9), (5, 9)]
    group = []
    for i, answer in enumerate(answers):
        logprobs = trainer.policy.sequence_logprobs([*prompt, *answer])[2:]
        group.append(make_trajectory("c", i, i, [make_call(f"c.{i}", response=answer, logprobs=logprobs, version=1)]))

    metrics = trainer.step(trainer.build_batch([("c", group)]))["policy"]

    assert metrics["ratio_mean"] == pytest.approx(1, abs=1e-5)
    assert metrics["kl"] == pytest.approx(0, abs=1e-6)
    assert metrics["staleness_mean"] == 0


def test_a_rewarded_response_becomes_likelier_and_the_others_rarer(tiny_llama: Path):
    trainer = make_trainer(tiny_llama)
    before = [response_logprob(trainer, (1, 2, 3), (4 + i, 9)) for i in range(4)]
    group = []
    for i in range(4):
        logprobs = trainer.policy.sequence_logprobs([1, 2, 3, 4 + i, 9])[2:]
        group.append(
            make_trajectory("a", i, float(i == 0), [make_call(f"a.{i}", response=(4 + i, 9), logprobs=logprobs)])
        )

    trainer.step(trainer.build_batch([("a", group)]))["policy"]

    after = [response_logprob(trainer, (1, 2, 3), (4 + i, 9)) for i in range(4)]
    assert after[0] > before[0]
    assert sum(after[1:]) < sum(before[1:])


def test_only_the_adapter_is_trained(tiny_llama: Path):
    trainer = make_trainer(tiny_llama)
    names = list(trainer.policy.parameters)
    base = trainer.policy.sequence_logprobs([1, 2, 3, 4], adapter=False)

    step(trainer)

    assert all(".lora_A." in name or ".lora_B." in name for name in names)
    assert trainer.policy.sequence_logprobs([1, 2, 3, 4], adapter=False) == base
    assert trainer.policy.sequence_logprobs([1, 2, 3, 4]) != base


def test_the_adapter_covers_all_linear_layers_and_is_reproducible(tiny_llama: Path):
    one, again = make_trainer(tiny_llama).files("policy"), make_trainer(tiny_llama).files("policy")
    config = json.loads(one[ADAPTER_CONFIG])

    assert one == again
    assert config["target_modules"] == sorted(
        ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    )
    assert config["base_model_name_or_path"] == "tiny"
    assert one[ADAPTER] != make_trainer(tiny_llama, seed=1).files("policy")[ADAPTER]


def test_peft_loads_the_adapter_and_computes_the_same(tiny_llama: Path, tmp_path: Path):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    trainer = make_trainer(tiny_llama)
    step(trainer)
    for name, data in trainer.files("policy").items():
        (tmp_path / name).write_bytes(data)

    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny_llama), str(tmp_path)).eval()

    with torch.no_grad():
        logprobs = loaded(torch.tensor([[1, 2, 3]])).logits[0, :-1].log_softmax(-1)
    assert [logprobs[0, 2].item(), logprobs[1, 3].item()] == pytest.approx(
        trainer.policy.sequence_logprobs([1, 2, 3]), abs=1e-6
    )


def test_a_restored_trainer_continues_bit_for_bit(tiny_llama: Path):
    straight = make_trainer(tiny_llama, control="shuffled_rewards")
    halves = make_trainer(tiny_llama, control="shuffled_rewards")
    for trainer in (straight, halves):
        step(trainer)
        step(trainer)
    resumed = make_trainer(tiny_llama, control="shuffled_rewards")
    resumed.restore(halves.version, {"policy": halves.files("policy")})

    for trainer in (straight, resumed):
        for _ in range(3):
            step(trainer)

    assert resumed.version == straight.version == 5
    assert resumed.files("policy") == straight.files("policy")


def test_restore_refuses_an_adapter_of_another_shape(tiny_llama: Path):
    other = make_trainer(tiny_llama, lora={"rank": 4})

    with pytest.raises(ValueError, match="LoRA shape"):
        make_trainer(tiny_llama).restore(1, {"policy": other.files("policy")})


def test_a_learning_rate_of_zero_changes_nothing(tiny_llama: Path):
    trainer = make_trainer(tiny_llama, learning_rate=0)
    before = trainer.files("policy")[ADAPTER]

    metrics = step(trainer)

    assert metrics["grad_norm"] > 0
    assert trainer.files("policy")[ADAPTER] == before


def test_a_batch_without_signal_makes_a_version_with_the_same_weights(tiny_llama: Path):
    trainer = make_trainer(tiny_llama)
    step(trainer)
    before = trainer.files("policy")

    metrics = trainer.step(trainer.build_batch([make_group("a", (1, 1), version=1), ("b", [])]))["policy"]

    assert trainer.version == 2
    assert trainer.files("policy") == before
    assert (metrics["reward_mean"], metrics["success"], metrics["tokens"]) == (1, 1, 0)


def test_a_step_that_is_not_finite_is_refused(tiny_llama: Path):
    trainer = make_trainer(tiny_llama)
    before = trainer.files("policy")
    batch = trainer.build_batch([make_group("a", (1, 0), logprobs=(math.nan, -1.0))])

    metrics = trainer.step(batch)["policy"]

    assert metrics["refused"] == 1
    assert all(math.isfinite(value) for value in metrics.values())
    assert trainer.files("policy") == before


def test_the_optimizers_state_travels_by_parameter_name(tiny_llama: Path):
    trainer = make_trainer(tiny_llama)
    step(trainer)

    saved = load(trainer.files("policy")[OPTIMIZER])

    fields = {"step", "exp_avg", "exp_avg_sq"}
    assert set(saved) == {f"{name}:{field}" for name in trainer.policy.parameters for field in fields}


def test_a_missing_base_model_is_named(tmp_path: Path):
    with pytest.raises(UnknownModel, match=r"'tiny'.*config\.json"):
        make_trainer(tmp_path / "nowhere")
