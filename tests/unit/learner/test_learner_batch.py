"""What is trained on, and what never is."""

import pytest
import torch

from leyden_algorithms import COMPARISONS
from leyden_contracts import Control, Verdict
from leyden_learner.batch import build_batch
from leyden_learner.metrics import batch_metrics
from leyden_learner.objective import Objective
from leyden_learner.rollouts import Rules
from leyden_learner.staleness import is_stale
from support.learning import VOCABULARY, make_call, make_group, make_spec, make_trajectory


def rules(version: int = 0, role: str = "policy", **algorithm: object) -> Rules:
    return Rules(make_spec(**algorithm).algorithm, (role,), version, VOCABULARY)


def build(groups, its_rules=None, seed: int = 0):
    its_rules = its_rules or rules()
    return build_batch(groups, its_rules, Objective(its_rules.algorithm), torch.Generator().manual_seed(seed))


def test_each_call_gets_its_episodes_advantage_and_its_own_tokens():
    calls = [
        make_call("a.0", 1, prompt=(1, 2), response=(3,)),
        make_call("a.0", 2, prompt=(1, 2, 3, 4), response=(5, 6)),
    ]
    good, bad = make_trajectory("a", 0, 1.0, calls), make_trajectory("a", 1, 0.0)

    batch = build([("a", [good, bad])])

    assert [sample.tokens.tolist() for sample in batch.samples] == [[1, 2, 3], [1, 2, 3, 4, 5, 6], [1, 2, 3, 5, 9]]
    assert [sample.prompt_length for sample in batch.samples] == [2, 4, 3]
    assert [sample.advantage for sample in batch.samples] == pytest.approx([0.7071, 0.7071, -0.7071], abs=1e-4)
    assert batch.episodes == ("a.0", "a.1")
    assert batch.skipped == {}


def test_calls_of_frozen_roles_are_not_trained_on():
    calls = [make_call("a.0", 1, role="checker"), make_call("a.0", 2, role="policy", response=(7, 8, 9))]

    batch = build([("a", [make_trajectory("a", 0, 1.0, calls), make_trajectory("a", 1, 0.0)])])

    assert [sample.sampled_logprobs.numel() for sample in batch.samples] == [3, 2]


@pytest.mark.parametrize(
    "useless",
    [
        make_trajectory("a", 1, 0.0, verdict=Verdict.INCOMPLETE),
        make_trajectory("a", 1, 0.0, []),
        make_trajectory("a", 1, 0.0, [make_call("a.1", role="checker")]),
        make_trajectory("a", 1, 0.0, [make_call("a.1", temperature=0.0)]),
        make_trajectory("a", 1, 0.0, [make_call("a.1", response=(VOCABULARY,))]),
        make_trajectory("a", 1, 0.0, [make_call("a.1", logprobs=(-1.0,))]),
        make_trajectory("a", 1, 0.0, [make_call("a.1", response=())]),
    ],
    ids=["incomplete", "no calls", "no trained calls", "greedy", "foreign token", "missing logprob", "no tokens"],
)
def test_a_trajectory_that_cannot_be_trained_on_never_enters(useless):
    batch = build([("a", [make_trajectory("a", 0, 1.0), useless])])

    assert batch.skipped == {"a": "too_few_trajectories"}
    assert batch.samples == batch.rollouts == batch.episodes == ()


@pytest.mark.parametrize(
    ("useless", "reason"),
    [
        ({"verdict": Verdict.TEXT_ONLY, "calls": []}, "text_only"),
        ({"calls": []}, "no_trained_calls"),
        ({"calls": [make_call("a.1", role="checker")]}, "no_trained_calls"),
    ],
    ids=["text only", "no calls", "frozen roles only"],
)
def test_a_group_that_can_never_be_trained_on_says_why(useless, reason):
    batch = build([("a", [make_trajectory("a", index, float(index), **useless) for index in (0, 1)])])
    assert (batch.skipped, batch.dropped) == ({"a": reason}, {reason: 2})
    mixed = build([("a", [make_trajectory("a", 0, 1.0), make_trajectory("a", 1, 0.0, **useless)])])
    assert (mixed.skipped, mixed.dropped) == ({"a": "too_few_trajectories"}, {reason: 1})


def test_what_is_dropped_is_counted_by_reason():
    group = [make_trajectory("a", index, float(index)) for index in (0, 1)]
    group += [make_trajectory("a", 2, 0.0, [], verdict=Verdict.TEXT_ONLY), make_trajectory("a", 3, 0.0, [])]
    group.append(make_trajectory("a", 4, 0.0, [make_call("a.4", temperature=0.0)]))
    batch = build([("a", group), make_group("b", (0, 1), version=-9)], rules())
    assert batch.episodes == ("a.0", "a.1")
    expected = {"text_only": 1, "no_trained_calls": 1, "untrainable": 1, "stale": 2}
    assert batch.dropped == expected
    assert {
        name: value for name, value in batch_metrics(batch, "policy", 0).items() if name.startswith("dropped_")
    } == {f"dropped_{reason}": number for reason, number in expected.items()}


@pytest.mark.parametrize(("policy_version", "stale"), [(3, True), (4, False), (5, False)])
def test_staleness_is_the_distance_to_the_learners_version(policy_version: int, stale: bool):
    assert is_stale(policy_version, learner_version=5, max_staleness=1) is stale


def test_groups_are_skipped_with_a_reason():
    groups = [
        make_group("fresh", (1, 0), version=2),
        make_group("old", (1, 0, 1), version=1),
        make_group("lonely", (1,), version=2),
        make_group("equal", (0.5, 0.5), version=2),
        ("empty", []),
    ]

    batch = build(groups, rules(version=2))

    assert batch.groups == ("fresh", "old", "lonely", "equal", "empty")
    assert batch.skipped == {
        "old": "stale",
        "lonely": "too_few_trajectories",
        "equal": "equal_rewards",
        "empty": "too_few_trajectories",
    }
    assert batch.episodes == ("fresh.0", "fresh.1")
    assert len(batch.rollouts) == 4


def test_one_old_call_makes_a_trajectory_stale_and_leaves_its_neighbours():
    old = make_trajectory("a", 0, 1.0, [make_call("a.0", 1, version=1), make_call("a.0", 2, version=2)])
    fresh = [make_trajectory("a", i, i - 1.0, [make_call(f"a.{i}", version=2)]) for i in (1, 2)]

    batch = build([("a", [old, *fresh])], rules(version=2))

    assert batch.episodes == ("a.1", "a.2")
    assert batch.skipped == {}


def test_shuffled_rewards_are_the_same_rewards_elsewhere(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(COMPARISONS, "grpo", lambda values, groups, members: values)
    groups = [make_group("a", (0, 1, 2, 3)), make_group("b", (4, 5, 6, 7))]
    shuffled = rules(control=Control.SHUFFLED_REWARDS)

    one, again, other = (build(groups, shuffled, seed) for seed in (0, 0, 1))

    rewards = [[sample.advantage for sample in batch.samples] for batch in (one, again, other)]
    assert all(sorted(found) == [0, 1, 2, 3, 4, 5, 6, 7] for found in rewards)
    assert rewards[0] == rewards[1] != rewards[2]
    assert any(reward >= 4 for reward in rewards[0][:4])
