"""The learned critics of a run: what they see, what they learn, that nothing of them is lost, and what is refused."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from prometheus_client import REGISTRY
from pydantic import ValidationError
from safetensors.torch import load

from leyden_adapter_loader.cache import wanted_files
from leyden_contracts import AdapterManifest, Algorithm, Signal
from leyden_learner.checkpoint import digests
from leyden_learner.compute import Compute
from leyden_learner.critics import CRITIC, Critics
from leyden_learner.metrics import observe
from leyden_learner.trainer import ADAPTER, ADAPTER_CONFIG, OPTIMIZER, Trainer
from support.forest import make_samples
from support.learning import VOCABULARY, make_call, make_group, make_spec, make_trajectory
from support.three_calls import three_calls

BOTH = {"checker": {}, "writer": {}}


def make_trainer(folder: Path, compute: Compute | None = None, **spec: object) -> Trainer:
    spec = {"credit": "critic", "learning_rate": 1e-3} | spec
    return Trainer(make_spec(**spec), folder, "cpu", compute or Compute())


def take_steps(trainer: Trainer, count: int, **more: object) -> list[dict[str, dict[str, float]]]:
    return [
        trainer.step(trainer.build_batch(three_calls(trainer.version, version=trainer.version, **more)))
        for _ in range(count)
    ]


@pytest.fixture
def taught(tiny_llama: Path) -> Trainer:
    trainer = make_trainer(tiny_llama)
    take_steps(trainer, 2)
    return trainer


# What a critic sees


def test_values_are_the_same_padded_packed_and_shared(tiny_llama: Path, taught: Trainer):
    samples = [replace(one, role="policy") for one in make_samples(3, 4, turns=2, vocabulary=VOCABULARY)]
    computes = {"padded": Compute(shared_prefixes=False), "shared": Compute()}
    found = {}
    for name, compute in computes.items():
        for limit in (64, 8192):
            trainer = make_trainer(tiny_llama, compute, micro_batch_tokens=limit)
            trainer.restore(2, {"policy": taught.files("policy")})
            found[f"{name} {limit}"] = trainer._critics.judge(samples)

    plain = make_trainer(tiny_llama).policy._peft.get_base_model()
    with torch.no_grad(), taught.policy._peft.disable_adapter():
        expected = torch.stack(
            [plain.model(one.tokens[None, : one.prompt_length]).last_hidden_state[0, -1] for one in samples]
        )
    for name, seen in found.items():
        assert torch.allclose(seen.states_CH, expected, atol=1e-5, rtol=1e-5), name
        assert torch.allclose(seen.values_C, found["padded 64"].values_C, atol=1e-5), name
    assert found["shared 8192"].values_C.std() > 0.01


def test_a_state_means_the_same_whatever_the_policy_has_become(tiny_llama: Path):
    trainer = make_trainer(tiny_llama, learning_rate=0.1)
    samples = [replace(one, role="policy") for one in make_samples(1, 2, vocabulary=VOCABULARY)]
    before = trainer._critics.judge(samples)
    logprobs = trainer.policy.frozen_logprobs(samples)

    take_steps(trainer, 2)

    assert torch.equal(trainer._critics.judge(samples).states_CH, before.states_CH)
    assert not torch.allclose(trainer.policy.frozen_logprobs(samples), logprobs, atol=1e-2)


# What it learns


def test_it_comes_to_foresee_returns_and_so_the_advantages_vary_less(tiny_llama: Path):
    trainer = make_trainer(tiny_llama, learning_rate=0)
    variances = []
    explained = []
    for _ in range(12):
        batch = trainer.build_batch(three_calls(trainer.version, groups=12, version=trainer.version))
        (lesson,) = batch.lessons
        variances.append((lesson.returns_C - lesson.values_C).var().item() / lesson.returns_C.var().item())
        explained.append(trainer.step(batch)["policy"]["explained_variance"])

    assert explained[0] == pytest.approx(0)
    assert sum(explained[-4:]) / 4 > 0.5
    assert variances[0] == pytest.approx(1)
    assert sum(variances[-4:]) / 4 < 0.5
    assert explained == pytest.approx([1 - one for one in variances], abs=0.01)


def test_a_call_is_judged_before_its_outcome_is_learned(tiny_llama: Path):
    trainer = make_trainer(tiny_llama)
    groups = three_calls(0)

    first = trainer.build_batch(groups)
    trainer.step(first)

    assert first.lessons[0].values_C.tolist() == [0] * 18
    assert trainer.build_batch(three_calls(0, version=1)).lessons[0].values_C.abs().min() > 0


def test_a_fresh_critic_is_a_baseline_of_the_batch(tiny_llama: Path):
    groups = three_calls(0)
    critic = make_trainer(tiny_llama, critic={"trace": 1.0}).build_batch(groups)
    batch = make_trainer(tiny_llama, credit="identical", advantage="reinforce++", least_episodes=1).build_batch(groups)

    assert [one.advantage for one in critic.samples] == pytest.approx([one.advantage for one in batch.samples])


def test_calls_of_a_lucky_task_are_not_praised_for_its_luck(tiny_llama: Path):
    gaps = {}
    for credit in ("identical", "critic"):
        trainer = make_trainer(tiny_llama, credit=credit, advantage="reinforce++", least_episodes=1)
        take_steps(trainer, 4, groups=16)
        batch = trainer.build_batch(three_calls(4, groups=16, version=4))
        lucky, unlucky = ([s.advantage for s in batch.samples if s.tokens[3] % 2 == luck] for luck in (1, 0))
        gaps[credit] = sum(lucky) / len(lucky) - sum(unlucky) / len(unlucky)

    assert gaps["identical"] > 1.5
    assert abs(gaps["critic"]) < 0.75


def test_rewards_on_the_way_are_part_of_what_a_call_is_worth(tiny_llama: Path):
    trainer = make_trainer(tiny_llama, discount=0.5)
    ((name, (one,)),) = three_calls(0, groups=1)
    one = one.model_copy(update={"reward": 1.0, "signals": (Signal(call=2, name="tool_error", value=-1.0),)})

    batch = trainer.build_batch([(name, [one])])

    assert batch.lessons[0].returns_C.tolist() == [0.5 * -0.5, -1 + 0.5, 1.0]


def test_no_more_than_the_newest_calls_are_remembered(tiny_llama: Path):
    trainer = make_trainer(tiny_llama, critic={"window": 20})
    take_steps(trainer, 1)
    take_steps(trainer, 1)
    saved = load(trainer.files("policy")[CRITIC])

    assert saved["states"].shape == (20, 32)
    newest = trainer.build_batch(three_calls(1, version=2)).lessons[0]
    assert torch.equal(saved["states"][-18:], newest.states_CH)
    assert torch.equal(saved["returns"][-18:], newest.returns_C.float())


def test_a_step_without_a_signal_for_the_policy_still_teaches_the_critic(tiny_llama: Path):
    trainer = make_trainer(tiny_llama)

    def step() -> dict[str, float]:
        return trainer.step(trainer.build_batch([make_group("a", (0, 0), version=trainer.version)]))["policy"]

    metrics = step()

    assert metrics["tokens"] == 0 and metrics["value_loss"] == 0
    assert "explained_variance" not in metrics
    assert load(trainer.files("policy")[CRITIC])["returns"].tolist() == [0, 0]


# Roles


@pytest.mark.parametrize("compare", ["jointly", "apart"])
def test_each_role_has_a_critic_of_its_own_calls(tiny_llama: Path, compare: str):
    trainer = make_trainer(tiny_llama, roles=BOTH, compare_roles=compare)
    roles = ("writer", "checker", "writer")
    metrics = take_steps(trainer, 1, roles=roles)[0]
    saved = {role: load(trainer.files(role)[CRITIC]) for role in BOTH}

    assert {role: one["states"].shape[0] for role, one in saved.items()} == {"checker": 6, "writer": 12}
    assert not torch.equal(saved["checker"]["out.weight"], saved["writer"]["out.weight"])
    assert all("explained_variance" in one for one in metrics.values())


def test_jointly_a_call_answers_to_the_other_roles_expectation_and_apart_to_its_own(tiny_llama: Path):
    roles = ("writer", "checker", "writer")
    found = {}
    for compare in ("jointly", "apart"):
        trainer = make_trainer(tiny_llama, roles=BOTH, compare_roles=compare, critic={"trace": 0.0})
        take_steps(trainer, 1, roles=roles)
        batch = trainer.build_batch(three_calls(1, groups=8, version=1, roles=roles))
        values = {one.role: one.values_C for one in batch.lessons}
        found[compare] = {role: torch.tensor([s.advantage for s in batch.of(role)]) for role in BOTH}
        wins = torch.tensor([one.reward for _, (one,) in three_calls(1, groups=8)], dtype=torch.float64)

    writer, checker = values["writer"].view(8, 2), values["checker"]
    jointly = torch.stack([checker - writer[:, 0], writer[:, 1] - checker, wins - writer[:, 1]], 1)
    apart = torch.stack([writer[:, 1] - writer[:, 0], wins - writer[:, 1]], 1)

    def whitened(rows: torch.Tensor) -> torch.Tensor:
        weight = rows.shape[1]
        centred = rows - rows.mean()
        return centred / (centred.square().sum() / weight / (rows.shape[0] - 1)).sqrt()

    expected = whitened(jointly)
    assert found["jointly"]["writer"].tolist() == pytest.approx(expected[:, [0, 2]].flatten().tolist(), abs=1e-4)
    assert found["jointly"]["checker"].tolist() == pytest.approx(expected[:, 1].tolist(), abs=1e-4)
    assert found["apart"]["writer"].tolist() == pytest.approx(whitened(apart).flatten().tolist(), abs=1e-4)
    assert found["apart"]["checker"].tolist() == pytest.approx(
        whitened((wins - checker)[:, None])[:, 0].tolist(), abs=1e-4
    )


# Its checkpoint


def test_a_restored_run_continues_bit_for_bit(tiny_llama: Path):
    straight, halves, resumed = (make_trainer(tiny_llama, roles=BOTH) for _ in range(3))
    roles = ("writer", "checker", "writer")
    for trainer in (straight, halves):
        take_steps(trainer, 2, roles=roles)
    resumed.restore(2, {role: halves.files(role) for role in BOTH})

    for trainer in (straight, resumed):
        take_steps(trainer, 2, roles=roles)

    assert all(resumed.files(role) == straight.files(role) for role in BOTH)
    assert resumed.files("writer")[CRITIC] != halves.files("writer")[CRITIC]


def test_a_critic_that_has_learned_nothing_yet_can_be_restored(tiny_llama: Path):
    fresh, resumed = make_trainer(tiny_llama), make_trainer(tiny_llama)
    resumed.restore(1, {"policy": fresh.files("policy")})

    assert load(resumed.files("policy")[CRITIC])["states"].shape == (0, 32)
    take_steps(resumed, 1)


def test_a_critic_of_another_width_is_refused(tiny_llama: Path, taught: Trainer):
    files = taught.files("policy")
    narrow = Critics(Algorithm(credit="critic"), _Narrow(), ("policy",)).files("policy")

    with pytest.raises(ValueError, match="does not fit"):
        make_trainer(tiny_llama).restore(2, {"policy": files | narrow})


class _Narrow:
    width = 8


def test_runs_without_a_critic_have_no_file_and_no_figures_of_one(tiny_llama: Path):
    trainer = make_trainer(tiny_llama, credit="identical")
    metrics = trainer.step(trainer.build_batch([make_group("a", (1, 0))]))["policy"]

    assert CRITIC not in trainer.files("policy")
    assert not {"value_loss", "explained_variance"} & metrics.keys()


def test_replicas_do_not_fetch_it(taught: Trainer):
    files = digests(taught.files("policy"))
    given = {"run": "run-critic", "role": "policy", "version": 2, "parent": 1, "created": 0.0, "files": files}
    empty = {"metrics": {}, "groups": [], "trained_episodes": [], "skipped": {}, "probes": [], "config": {}}

    assert CRITIC in files
    assert wanted_files(AdapterManifest(**given, **empty)).keys() == {ADAPTER, ADAPTER_CONFIG}


# What is not finite


def test_a_value_that_is_not_finite_refuses_the_step_and_reaches_nothing(tiny_llama: Path, taught: Trainer):
    files = taught.files("policy")
    policy, plain = taught.policy, taught.policy.base_states
    policy.base_states = lambda samples: plain(samples).index_fill_(1, torch.tensor([3]), math.inf)
    batch = taught.build_batch(three_calls(2, version=2))
    policy.base_states = plain

    metrics = taught.step(batch)["policy"]

    assert metrics["refused"] == 1 and all(math.isfinite(one) for one in metrics.values())
    after = taught.files("policy")
    assert all(after[name] == files[name] for name in (ADAPTER, OPTIMIZER, CRITIC))
    assert set(batch.skipped_if(True).values()) == {"not_finite"}


def test_so_does_a_value_of_calls_that_the_policy_is_not_trained_on(tiny_llama: Path):
    trainer = make_trainer(tiny_llama, drop_cut_replies=True)
    cut = [make_call(f"a.{i}", response=(4 + i, 9)).model_copy(update={"finish_reason": "length"}) for i in (0, 1)]
    before = trainer.files("policy")
    trainer.policy.base_states = lambda samples: torch.full((len(samples), trainer.policy.width), math.nan)

    batch = trainer.build_batch([("a", [make_trajectory("a", i, i, [call]) for i, call in enumerate(cut)])])

    assert trainer.step(batch)["policy"]["refused"] == 1
    assert batch.samples == () and trainer.files("policy") == before


def test_a_refused_step_teaches_the_critic_nothing(taught: Trainer):
    before = taught.files("policy")
    batch = taught.build_batch([make_group("a", (1, 0), version=2, logprobs=(math.nan, -1.0))])

    assert taught.step(batch)["policy"]["refused"] == 1
    assert taught.files("policy") == before


# Settings


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"credit": "identical", "critic": {}}, "leave it out"),
        ({"credit": "critic", "advantage": "grpo"}, "own baseline"),
        ({"credit": "critic", "advantage": "gdpo", "rewards": {"a": 1, "b": 1}}, "own baseline"),
        ({"credit": "critic", "step_weight": 1.0}, "gigpo"),
        ({"credit": "critic", "critic": {"trace": 1.5}}, "trace"),
        ({"credit": "critic", "critic": {"window": 0}}, "window"),
        ({"credit": "critic", "critic": {"ridge": 0}}, "ridge"),
        ({"credit": "critic", "critic": {"ridge": math.inf}}, "ridge"),
        ({"credit": "critic", "critic": {"rate": 0.1}}, "rate"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes: dict, word: str):
    with pytest.raises(ValidationError, match=word):
        make_spec(**changes)


def test_the_name_alone_is_enough_and_means_the_same_when_read_again():
    spec = make_spec(credit="critic", group_size=1)

    assert spec.algorithm.critic is not None and spec.algorithm.advantage == "reinforce++"
    assert type(spec).model_validate_json(spec.model_dump_json()) == spec
    assert make_spec(credit="critic", critic=None).algorithm == spec.algorithm
    assert make_spec(credit="critic", least_episodes=2).algorithm.least_episodes == 2


def test_its_figures_are_shown_to_prometheus(taught: Trainer):
    metrics = taught.step(taught.build_batch(three_calls(2, version=2)))["policy"]
    given = {"run": "run-critic", "role": "policy", "version": 3, "parent": 2, "created": 0.0, "metrics": metrics}
    empty = {"files": {}, "groups": [], "trained_episodes": [], "skipped": {}, "probes": [], "config": {}}
    observe([AdapterManifest(**given, **empty)])

    labels = {"run": "run-critic", "role": "policy"}
    for name in ("value_loss", "explained_variance"):
        assert REGISTRY.get_sample_value(f"leyden_learner_{name}", labels) == metrics[name]
