"""Every name that a run may give means something, and what does not fit together is refused."""

from typing import get_args

import pytest
import torch
from pydantic import ValidationError

from leyden_algorithms import (
    AGGREGATIONS,
    COMPARISONS,
    CORRECTIONS,
    CREDIT_STRATEGIES,
    KL_ESTIMATORS,
    TOKEN_LOSSES,
    Tokens,
    Totals,
)
from leyden_contracts import Algorithm, Signal
from leyden_learner.batch import build_batch
from leyden_learner.critics import Seen
from leyden_learner.objective import Objective
from leyden_learner.rollouts import Rules
from support.learning import VOCABULARY, make_call, make_group, make_spec, make_trajectory

TABLES = {
    "credit": CREDIT_STRATEGIES,
    "advantage": COMPARISONS,
    "loss": TOKEN_LOSSES,
    "average": AGGREGATIONS,
    "correction": CORRECTIONS,
    "kl_estimator": KL_ESTIMATORS,
}
EACH = [(field, name) for field in TABLES for name in get_args(Algorithm.model_fields[field].annotation)]
NEEDS = {"gdpo": {"rewards": {"right": 1.0, "short": 0.5}}, "constant": {"average_length": 100}}
LENGTHS = torch.tensor([3, 2])


def algorithm(**changes: object) -> Algorithm:
    return make_spec(**changes).algorithm


def tokens(advantage: float = 1.0) -> Tokens:
    generator = torch.Generator().manual_seed(0)
    current, old, sampled = (-torch.rand(5, generator=generator) for _ in range(3))
    return Tokens(
        current_T=current.requires_grad_(),
        old_T=old,
        sampled_T=sampled,
        advantages_T=torch.full((5,), advantage),
        lengths_S=LENGTHS,
    )


def build(groups, trained=("policy",), judge=None, **changes):
    rules = Rules(algorithm(**changes), trained, 0, VOCABULARY)
    return build_batch(groups, rules, Objective(rules.algorithm), torch.Generator().manual_seed(0), judge)


def _no_opinion(samples):
    return Seen(torch.zeros(len(samples), 1), torch.zeros(len(samples), dtype=torch.float64))


@pytest.mark.parametrize(("field", "name"), EACH)
def test_every_name_that_a_run_may_give_computes(field: str, name: str):
    assert name in TABLES[field]
    changes = {field: name, **NEEDS.get(name, {}), "kl": 0.1, "entropy_bonus": 0.01}
    objective, given = Objective(algorithm(**changes)), tokens()

    loss = objective.share(given, Totals(tokens=5, samples=2), torch.full((5,), -0.7), torch.full((5,), 0.4))
    loss.backward()

    assert torch.isfinite(loss)
    assert given.current_T.grad is not None and given.current_T.grad.abs().sum() > 0
    named = [{"right": reward, "short": 1 - reward / 4} for reward in (0, 1, 2)]
    _, group = make_group("a", (0, 1, 2))
    group = [one.model_copy(update={"rewards": rewards}) for one, rewards in zip(group, named, strict=True)]
    batch = build([("a", group)], judge=_no_opinion if name == "critic" else None, **changes)
    assert len(batch.samples) == 3 and any(sample.advantage for sample in batch.samples)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"discount": 0.9}, "discount"),
        ({"credit": "discounted", "step_weight": 1.0}, "gigpo"),
        ({"credit": "gigpo", "advantage": "reinforce++"}, "inside groups"),
        ({"advantage": "gdpo"}, "two or more"),
        ({"advantage": "gdpo", "rewards": {"a": 1, "b": 1}, "credit": "step_rewards"}, "identical or discounted"),
        ({"average": "constant"}, "average_length"),
        ({"average_length": 5}, "average_length"),
        ({"correction": "tis", "correction_low": 0.5}, "no such bound"),
        ({"correction_high": 2.0}, "no such bound"),
        ({"clip_low": 1.5}, "clip_low"),
        ({"least_episodes": 1}, "least_episodes"),
        ({"credit": "magic"}, "credit"),
        ({"compare_roles": "apart"}, "several trained roles"),
        ({"least_episodes": 9}, "group_size"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes: dict, word: str):
    with pytest.raises(ValidationError, match=word):
        algorithm(**changes)


def test_a_clip_that_is_not_given_is_the_losss_own():
    assert algorithm().clip == (0.2, 0.28)
    assert algorithm(loss="gspo").clip == (3e-4, 4e-4)
    assert algorithm(loss="gspo", clip_high=0.1).clip == (3e-4, 0.1)


def test_a_bonus_for_entropy_lowers_the_loss_and_the_kl_raises_it():
    plain, base = Objective(algorithm()), torch.full((5,), -3.0)
    totals = Totals(tokens=5, samples=2)
    found = plain.share(tokens(), totals, None, None)
    assert Objective(algorithm(entropy_bonus=0.1)).share(tokens(), totals, None, torch.ones(5)) < found
    assert Objective(algorithm(kl=0.1)).share(tokens(), totals, base, None) > found


def test_a_correction_weighs_the_tokens():
    objective = Objective(algorithm(correction="icepop", correction_low=0.9, correction_high=1.1))
    correction = objective.correction(tokens())
    assert 0 < int((correction.weights_T == 0).sum()) == correction.counts["above"] + correction.counts["below"]


def test_intermediate_rewards_count_with_step_rewards_only():
    calls = [[make_call(f"a.{i}", n, prompt=(1, n)) for n in (1, 2)] for i in (0, 1)]
    both = [make_trajectory("a", i, 1.0, calls[i]) for i in (0, 1)]
    both[0] = both[0].model_copy(update={"signals": (Signal(call=2, name="tool_error", value=-1.0),)})

    assert build([("a", both)]).skipped == {"a": "equal_rewards"}
    advantages = [sample.advantage for sample in build([("a", both)], credit="step_rewards").samples]
    assert advantages[0] == advantages[1] < 0 < advantages[2] == advantages[3]


def test_named_rewards_are_summed_by_weight_and_an_episode_without_one_is_left_out():
    _, group = make_group("a", (0, 0, 0))
    named = [{"right": 1.0, "short": 0.0}, {"right": 0.0, "short": 1.0}, {"right": 1.0}]
    group = [one.model_copy(update={"rewards": rewards}) for one, rewards in zip(group, named, strict=True)]
    batch = build([("a", group)], rewards={"right": 2.0, "short": 1.0})
    assert [(s.episode, s.advantage > 0) for s in batch.samples] == [("a.0", True), ("a.1", False)]


def test_cut_replies_are_compared_but_not_trained_on():
    good, bad = (make_call("a.0"), make_call("a.1").model_copy(update={"finish_reason": "length"}))
    group = [make_trajectory("a", 0, 1.0, [good]), make_trajectory("a", 1, 0.0, [bad])]
    batch = build([("a", group)], drop_cut_replies=True)
    assert [(sample.episode, sample.advantage > 0) for sample in batch.samples] == [("a.0", True)]
    assert batch.episodes == ("a.0",)


def test_roles_are_compared_jointly_or_apart():
    def episode(index: int, reward: float, checker: bool):
        calls = [make_call(f"a.{index}", 1, role="writer")]
        calls += [make_call(f"a.{index}", 2, role="checker")] if checker else []
        return make_trajectory("a", index, reward, calls)

    group = [episode(0, 1.0, True), episode(1, 0.0, True), episode(2, 0.0, False), episode(3, 0.0, False)]
    both = ("checker", "writer")
    roles = {name: {} for name in both}
    jointly = build([("a", group)], both, roles=roles)
    apart = build([("a", group)], both, roles=roles, compare_roles="apart")

    def of(batch, role):
        return [round(sample.advantage, 3) for sample in batch.of(role)]

    assert of(jointly, "writer") == of(apart, "writer") == [1.5, -0.5, -0.5, -0.5]
    assert of(jointly, "checker") == [1.5, -0.5], "the group's advantages are shared"
    assert of(apart, "checker") == [0.707, -0.707], "the checker is compared where there was one"
    assert jointly.episodes == ("a.0", "a.1", "a.2", "a.3")


def test_apart_means_apart_where_the_whole_batch_is_compared():
    def episode(index: int, reward: float, role: str):
        return make_trajectory("a", index, reward, [make_call(f"a.{index}", role=role)])

    group = [
        episode(0, 10.0, "writer"),
        episode(1, 12.0, "writer"),
        episode(2, 0.0, "checker"),
        episode(3, 0.2, "checker"),
    ]
    both = ("checker", "writer")
    roles = {name: {} for name in both}
    apart = build([("a", group)], both, roles=roles, compare_roles="apart", advantage="reinforce++")

    for role in both:
        assert [sample.advantage for sample in apart.of(role)] == pytest.approx([-(0.5**0.5), 0.5**0.5], abs=1e-4)


def test_where_replies_share_a_ratio_the_statistics_are_of_it():
    old, current = torch.zeros(5), torch.tensor([0.3, 0.0, -0.3, 0.1, 0.1])
    advantages = torch.ones(5)
    each = Objective(algorithm()).stats(LENGTHS, current, old, advantages).metrics()
    shared = Objective(algorithm(loss="gspo")).stats(LENGTHS, current, old, advantages).metrics()
    assert each["ratio_max"] == pytest.approx(1.3499, abs=1e-4)
    assert shared["ratio_max"] == pytest.approx(1.1052, abs=1e-4)
    assert shared["clip_fraction"] == pytest.approx(2 / 5)
