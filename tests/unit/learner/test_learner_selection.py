"""Which groups and episodes a step trains on, by the run's `selection`."""

import pytest
import torch

from leyden_contracts import Control
from leyden_learner.batch import Batch, build_batch, has_signal
from leyden_learner.metrics import batch_metrics
from leyden_learner.objective import Objective
from leyden_learner.rollouts import Rules
from support.learning import VOCABULARY, make_call, make_group, make_spec, make_trajectory

DYNAMIC = {"dynamic": True}


def rules(selection: dict, version: int = 0, **algorithm: object) -> Rules:
    return Rules(make_spec(selection=selection, **algorithm).algorithm, ("policy",), version, VOCABULARY)


def build(groups, its_rules: Rules) -> Batch:
    return build_batch(groups, its_rules, Objective(its_rules.algorithm), torch.Generator().manual_seed(0))


def tells(group, its_rules: Rules) -> bool:
    return has_signal(group[1], its_rules, Objective(its_rules.algorithm))


@pytest.mark.parametrize(
    ("limit", "long"),
    [("longest_prompt", {"prompt": (1, 2, 3, 4)}), ("longest_reply", {"response": (1, 2, 3, 4)})],
)
def test_an_episode_with_one_longer_call_is_left_out_and_counted(limit: str, long: dict):
    calls = [make_call("a.0", 1), make_call("a.0", 2, **long)]
    exact = {name: tokens[:3] for name, tokens in long.items()}
    short = [make_trajectory("a", i, i - 1.0, [make_call(f"a.{i}", **exact)]) for i in (1, 2)]

    batch = build([("a", [make_trajectory("a", 0, 1.0, calls), *short])], rules({limit: 3}))

    assert batch.episodes == ("a.1", "a.2")
    assert batch.dropped == {"too_long": 1}
    assert [rollout.trajectory.reward for rollout in batch.rollouts] == [0.0, 1.0], "not a zero"


def test_a_long_call_of_a_frozen_role_is_nobodys_concern():
    calls = [make_call("a.0", 1), make_call("a.0", 2, role="checker", response=(1, 2, 3, 4))]
    group = ("a", [make_trajectory("a", 0, 1.0, calls), make_trajectory("a", 1, 0.0)])
    assert build([group], rules({"longest_reply": 3})).episodes == ("a.0", "a.1")


def test_a_group_of_long_episodes_says_so():
    batch = build([make_group("a", (1, 0), prompt=(1, 2, 3, 4))], rules({"longest_prompt": 3}))
    assert (batch.skipped, batch.dropped) == ({"a": "too_long"}, {"too_long": 2})


def test_a_cut_reply_within_the_limit_is_compared_and_a_longer_one_is_not():
    """`drop_cut_replies` leaves a reply out of the loss, `longest_reply` its whole episode out of the comparison."""
    group = make_group("a", (1, 0, 0))
    for index, response in ((1, (4, 9)), (2, (4, 9, 9))):
        call = make_call(f"a.{index}", response=response).model_copy(update={"finish_reason": "length"})
        group[1][index] = make_trajectory("a", index, 0.0, [call])

    batch = build([group], rules({"longest_reply": 2}, drop_cut_replies=True))

    assert batch.episodes == ("a.0",)
    assert [rollout.trajectory.episode for rollout in batch.rollouts] == ["a.0", "a.1"]
    assert batch.samples[0].advantage == pytest.approx(0.7071, abs=1e-4), "one success of two"


@pytest.mark.parametrize(
    ("rewards", "reason"),
    [((0, 0, 0, 0.4), "too_hard"), ((1, 0, 0, 0), None), ((1, 1, 2, 0), None), ((1, 1, 1, 0.5), "too_easy")],
)
def test_a_group_out_of_the_bounds_of_success_is_left_out(rewards: tuple, reason: str | None):
    batch = build(
        [make_group("a", rewards)], rules({"lowest_success": 0.25, "highest_success": 0.75, "success_reward": 0.5})
    )
    expected = {"a": reason} if reason else {}
    assert batch.skipped == expected
    assert len(batch.rollouts) == 4, "what people watch counts them"
    assert bool(batch.samples) is (reason is None)


def test_only_episodes_that_may_be_trained_on_count_for_difficulty():
    group = make_group("a", (1, 0, 0, 0))
    group[1][2:] = [make_trajectory("a", i, 0.0, [make_call(f"a.{i}", version=-9)]) for i in (2, 3)]
    assert build([group], rules({"lowest_success": 0.5})).skipped == {}


@pytest.mark.parametrize(
    ("rewards", "changes", "signal"),
    [
        ((1, 0), {}, True),
        ((1, 1), {}, False),
        ((1,), {}, False),
        ((1, 0), {"selection": DYNAMIC | {"lowest_success": 0.6}}, False),
        ((1, 0), {"control": Control.SHUFFLED_REWARDS}, True),
        ((1, 1), {"control": Control.SHUFFLED_REWARDS}, False),
        ((1, 0), {"version": 1}, False),
        ((1, 0), {"version": 1, "max_staleness": 1}, True),
    ],
)
def test_a_group_has_a_signal_if_it_would_be_trained_on(rewards: tuple, changes: dict, signal: bool):
    its_rules = rules(**{"selection": DYNAMIC} | changes)
    assert tells(make_group("a", rewards), its_rules) is signal
    if "control" not in changes:
        assert bool(build([make_group("a", rewards)], its_rules).samples) is signal


def test_a_group_whose_replies_with_an_advantage_are_cut_has_no_signal():
    group = make_group("a", (1, 0))
    for index, one in enumerate(group[1]):
        cut = one.transitions[0].model_copy(update={"finish_reason": "length"})
        group[1][index] = one.model_copy(update={"transitions": (cut,)})
    assert tells(group, rules(DYNAMIC))
    assert not tells(group, rules(DYNAMIC, drop_cut_replies=True))
    assert build([group], rules(DYNAMIC, drop_cut_replies=True)).skipped == {"a": "cut_replies"}


def test_groups_without_a_signal_do_not_change_what_is_made_of_the_others():
    """Deviations of a batch would shrink with every group that was sampled for nothing."""
    its_rules = rules(DYNAMIC, advantage="reinforce++_baseline")
    good = make_group("a", (1, 0, 0))

    alone = build([good], its_rules)
    beside = build([make_group("b", (1, 1, 1)), good, make_group("c", (0, 0))], its_rules)

    assert beside.skipped == {"b": "equal_rewards", "c": "equal_rewards"}
    assert [one.advantage for one in beside.samples] == [one.advantage for one in alone.samples]
    metrics = batch_metrics(beside, "policy", 0)
    assert (metrics["groups"], metrics["signal_share"]) == (3, pytest.approx(1 / 3))
    assert metrics["reward_mean"] == 4 / 8


def test_judging_draws_nothing_from_the_runs_random_numbers():
    its_rules = rules(DYNAMIC, control=Control.SHUFFLED_REWARDS)
    generator = torch.Generator().manual_seed(0)
    build_batch([make_group("a", (1, 1))], its_rules, Objective(its_rules.algorithm), generator)
    assert torch.equal(generator.get_state(), torch.Generator().manual_seed(0).get_state())
