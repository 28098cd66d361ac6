"""Credit over calls: by hand, against plain Python, and what must hold whatever the episodes."""

import math
from itertools import accumulate

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from leyden_algorithms import (
    COMPARISONS,
    CREDIT_STRATEGIES,
    Episodes,
    ValueHead,
    critic_targets,
    value_loss,
)
from leyden_algorithms.advantages import EPSILON
from leyden_algorithms.credit import gae
from support import plain_algorithms as plain

REWARDS = [1.0, 0.0, 0.5, 2.0, 2.0]
CALLS = [2, 1, 3, 2, 1]
GROUPS = [0, 0, 0, 1, 1]
SIGNALS = [[0.1, -0.2], [0.0], [0.3, 0.0, 0.5], [1.0, 0.0], [0.25]]
STATES = [[7, 8], [7], [7, 8, 8], [7, 9], [7]]
VALUES = [[0.5, 0.75], [0.5], [0.25, 0.5, 1.0], [1.0, -1.0], [0.0]]


def flat(rows: list[list]) -> list:
    return [value for row in rows for value in row]


def split(values: Tensor, calls: list[int] = CALLS) -> list[list[float]]:
    return [part.tolist() for part in values.split(calls)]


def make_episodes(rewards: list = REWARDS, calls: list = CALLS, groups: list = GROUPS, **per_call: list) -> Episodes:
    given = {
        name: torch.tensor(flat(rows), dtype=torch.int64 if name == "states_C" else torch.float64)
        for name, rows in per_call.items()
    }
    reward = torch.tensor(rewards, dtype=torch.float64)
    return Episodes(rewards_E=reward, calls_E=torch.tensor(calls), groups_E=torch.tensor(groups), **given)


def everything(**changed: list) -> Episodes:
    return make_episodes(**{"signals_C": SIGNALS, "states_C": STATES, "values_C": VALUES} | changed)


def credit(name: str, episodes: Episodes, comparison: str = "grpo", **options: object) -> Tensor:
    return CREDIT_STRATEGIES[name](episodes, COMPARISONS[comparison], **options)


def test_identical_credit_gives_each_call_its_episodes_advantage():
    found = split(credit("identical", make_episodes()))

    # Mean 1/2, deviation 1/2; the second group's rewards are equal.
    assert found == [pytest.approx(row, abs=1e-5) for row in ([1.0, 1.0], [-1.0], [0.0, 0.0, 0.0], [0.0, 0.0], [0.0])]


def test_discounted_credit_shrinks_with_each_later_call():
    found = credit("discounted", make_episodes([1.0, 0.0], [3, 2], [0, 0]), "dr_grpo", discount=0.5)

    assert split(found, [3, 2]) == [[0.125, 0.25, 0.5], [-0.25, -0.5]]


def test_discounted_credit_without_discount_is_identical():
    found = credit("discounted", make_episodes(), discount=1.0)

    assert torch.equal(found, credit("identical", make_episodes()))


@pytest.mark.parametrize("discount", [1.0, 0.5, 0.0])
def test_step_rewards_are_the_returns_to_go_against_the_group(discount: float):
    expected = plain.step_rewards(REWARDS, GROUPS, SIGNALS, discount, EPSILON)

    found = split(credit("step_rewards", make_episodes(signals_C=SIGNALS), discount=discount))

    assert found == [pytest.approx(row, abs=1e-12) for row in expected]


def test_step_rewards_by_hand():
    episodes = make_episodes([1.0, 0.0], [2, 1], [0, 0], signals_C=[[0.0, 1.0], [0.5]])

    found = credit("step_rewards", episodes, "dr_grpo", discount=0.5)

    # Returns 1.5 and 2 (1.75 on the average), and 0.5: the baseline is (1.75 + 0.5) / 2.
    assert found.tolist() == pytest.approx([0.375, 0.875, -0.625])


def test_step_rewards_without_signals_are_identical():
    assert credit("step_rewards", make_episodes()).tolist() == pytest.approx(
        credit("identical", make_episodes()).tolist(), abs=1e-12
    )


def test_step_rewards_tell_calls_apart_where_all_episodes_earn_the_same():
    episodes = make_episodes([1.0, 1.0], [2, 2], [0, 0], signals_C=[[0.0, 1.0], [0.5, 0.5]])

    found = credit("step_rewards", episodes, discount=0.0)

    assert found.abs().max() < 2
    assert found[0] < 0 < found[1]


@pytest.mark.parametrize("comparison", ["grpo", "dr_grpo", "rloo", "reinforce++_baseline"])
def test_an_episode_alone_in_its_group_teaches_nothing_by_its_own_calls(comparison: str):
    episodes = make_episodes([1.0], [2], [0], signals_C=[[1.0, 0.5]])

    assert credit("step_rewards", episodes, comparison).tolist() == [0, 0]


@pytest.mark.parametrize(("comparison", "scale"), [("grpo", True), ("dr_grpo", False)])
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_gigpo_is_what_its_paper_says(comparison: str, scale: bool, weight: float):
    expected = plain.gigpo(REWARDS, GROUPS, SIGNALS, STATES, weight, 0.95, scale, EPSILON)

    found = split(credit("gigpo", everything(), comparison, weight=weight))

    assert found == [pytest.approx(row, abs=1e-12) for row in expected]


def test_gigpo_by_hand():
    # Both begin in state 1; the first goes on through a state of its own.
    episodes = make_episodes([1.0, 0.0], [2, 1], [0, 0], states_C=[[1, 2], [1]])

    found = credit("gigpo", episodes, "dr_grpo", discount=0.5, weight=1.0)

    # Episode level ±0.5; step level in state 1: returns 0.5 and 0, so ±0.25; in state 2 the first is alone.
    assert found.tolist() == pytest.approx([0.75, 0.5, -0.75])


def test_gigpo_never_compares_states_of_different_tasks():
    apart = credit("gigpo", make_episodes([1.0, 0.0], [1, 1], [0, 1], states_C=[[5], [5]]), "dr_grpo")

    assert apart.tolist() == [0, 0]


def test_gigpo_with_unique_states_is_identical():
    found = credit("gigpo", make_episodes(states_C=[[1, 2], [3], [4, 5, 6], [7, 8], [9]]))

    assert torch.equal(found, credit("identical", make_episodes()))


def test_gae_is_what_its_paper_says():
    expected = [
        plain.gae([*signals[:-1], signals[-1] + reward], values, 0.9, 0.8)
        for signals, reward, values in zip(SIGNALS, REWARDS, VALUES, strict=True)
    ]

    found = split(gae(everything(), discount=0.9, trace=0.8))

    assert found == [pytest.approx(row, abs=1e-12) for row in expected]
    assert split(credit("critic", everything(), discount=0.9, trace=0.8, normalise=False)) == found


def test_gae_by_hand():
    episodes = make_episodes([1.0], [2], [0], values_C=[[0.5, 0.8]])

    # The last call: 1 - 0.8. The first: 0.9 × 0.8 - 0.5 = 0.22, and 0.9 × 0.5 of the last one's 0.2.
    assert gae(episodes, discount=0.9, trace=0.5).tolist() == pytest.approx([0.31, 0.2])
    assert critic_targets(episodes, discount=0.9, trace=0.5).tolist() == pytest.approx([0.81, 1.0])


def test_a_full_trace_compares_the_return_with_the_value():
    targets = split(critic_targets(everything(), discount=1.0, trace=1.0))

    expected = [[r + later for later in plain.to_go(s, 1.0)] for r, s in zip(REWARDS, SIGNALS, strict=True)]
    assert targets == [pytest.approx(row) for row in expected]


def test_a_perfect_critic_leaves_no_advantage():
    episodes = make_episodes([1.0, 0.0], [3, 1], [0, 0], values_C=[[1.0, 1.0, 1.0], [0.0]])

    assert gae(episodes, discount=1.0, trace=0.95).tolist() == [0, 0, 0, 0]


def test_the_critics_advantages_are_normalised_over_the_batch():
    found = credit("critic", everything())

    weights = torch.cat([torch.full((calls,), 1 / calls, dtype=torch.float64) for calls in CALLS])
    assert (found * weights).sum().item() == pytest.approx(0, abs=1e-9)
    assert (found.square() * weights).sum().item() == pytest.approx(len(CALLS) - 1, rel=1e-4)


def test_no_gradient_goes_through_the_critic_into_an_advantage():
    values = torch.zeros(3, requires_grad=True)
    episodes = Episodes(
        rewards_E=torch.ones(2),
        calls_E=torch.tensor([2, 1]),
        groups_E=torch.zeros(2, dtype=torch.int64),
        values_C=values,
    )

    assert not credit("critic", episodes).requires_grad
    assert not critic_targets(episodes).requires_grad


def test_a_value_head_learns_the_value_of_states():
    torch.manual_seed(0)
    hidden, targets = torch.eye(4), torch.tensor([1.0, 0.0, -2.0, 0.5])
    head = ValueHead(4)
    assert head(hidden).tolist() == [0, 0, 0, 0]

    for _ in range(300):
        loss = value_loss(head(hidden.bfloat16()), targets).sum()
        for weight, gradient in zip(head.parameters(), torch.autograd.grad(loss, list(head.parameters())), strict=True):
            weight.data -= 0.3 * gradient

    assert head(hidden).dtype == torch.float32
    assert head(hidden).tolist() == pytest.approx(targets.tolist(), abs=1e-3)


@pytest.mark.parametrize(
    ("value", "expected", "slope"),
    [
        (0.5, 0.125, -0.5),  # within the clip: half the square of 0.5 - 1
        (0.9, 0.5 * 0.16, 0.0),  # it went too far the right way: nothing more to gain
        (-0.5, 0.5 * 2.25, -1.5),  # the wrong way: the full error
    ],
)
def test_a_clipped_value_loss(value: float, expected: float, slope: float):
    values = torch.tensor([value], requires_grad=True)

    loss = value_loss(values, torch.tensor([1.0]), torch.tensor([0.4]), clip=0.2)
    loss.sum().backward()

    assert loss.item() == pytest.approx(expected)
    assert values.grad.item() == pytest.approx(slope)


def test_a_clipped_value_loss_needs_the_old_values():
    with pytest.raises(ValueError, match="before the step"):
        value_loss(torch.zeros(1), torch.zeros(1), clip=0.2)


def test_gradients_of_the_value_loss():
    torch.manual_seed(0)
    values, targets, old = (torch.randn(6, dtype=torch.float64) for _ in range(3))
    values.requires_grad_()

    assert torch.autograd.gradcheck(lambda v: value_loss(v, targets, old, clip=0.2), values)


@pytest.mark.parametrize("name", ["identical", "discounted", "step_rewards"])
@pytest.mark.parametrize("comparison", ["grpo", "dr_grpo", "rloo", "reinforce++", "reinforce++_baseline"])
def test_a_constant_on_all_rewards_changes_no_credit(name: str, comparison: str):
    found = credit(name, everything(), comparison)

    more = credit(name, everything(rewards=[reward + 3 for reward in REWARDS]), comparison)

    assert more.tolist() == pytest.approx(found.tolist(), abs=1e-9)


@pytest.mark.parametrize("name", CREDIT_STRATEGIES)
@settings(max_examples=15)
@given(order=st.permutations(range(5)))
def test_the_order_of_episodes_does_not_matter(name: str, order: list[int]):
    found = split(credit(name, everything()))

    def moved(rows: list) -> list:
        return [rows[i] for i in order]

    changed = make_episodes(
        moved(REWARDS), moved(CALLS), moved(GROUPS),
        signals_C=moved(SIGNALS), states_C=moved(STATES), values_C=moved(VALUES),
    )  # fmt: skip

    assert split(credit(name, changed), moved(CALLS)) == [pytest.approx(row, abs=1e-9) for row in moved(found)]


@pytest.mark.parametrize("name", ["identical", "discounted", "step_rewards", "gigpo"])
def test_a_group_does_not_depend_on_its_neighbours(name: str):
    first = make_episodes(REWARDS[:3], CALLS[:3], GROUPS[:3], signals_C=SIGNALS[:3], states_C=STATES[:3])

    both = credit(name, everything())

    assert both[: sum(CALLS[:3])].tolist() == pytest.approx(credit(name, first).tolist(), abs=1e-12)


def test_several_rewards_go_with_gdpo_and_identical_credit():
    rewards = [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    episodes = make_episodes(rewards, [1, 2, 1], [0, 0, 0])

    found = split(credit("identical", episodes, "gdpo"), [1, 2, 1])

    per_episode = plain.gdpo(rewards, [0, 0, 0], [1.0, 1.0], EPSILON)
    assert found == [pytest.approx([per_episode[i]] * n) for i, n in enumerate([1, 2, 1])]
    with pytest.raises(ValueError, match="one reward for each episode"):
        credit("step_rewards", episodes, "gdpo")


def test_roles_jointly_and_apart():
    # Two episodes of one task; the writer made 2 calls in each, the checker 1 in the first only.
    jointly = make_episodes([1.0, 0.0], [3, 2], [0, 0])
    apart = make_episodes([1.0, 0.0, 1.0], [2, 2, 1], [0, 0, 1])

    assert split(credit("identical", jointly, "dr_grpo"), [3, 2]) == [[0.5] * 3, [-0.5] * 2]
    assert split(credit("identical", apart, "dr_grpo"), [2, 2, 1]) == [[0.5] * 2, [-0.5] * 2, [0.0]]


@pytest.mark.parametrize("name", CREDIT_STRATEGIES)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_reward_that_is_no_number_is_refused(name: str, bad: float):
    with pytest.raises(ValueError, match="NaN or infinite"):
        credit(name, everything(rewards=[1.0, bad, 0.5, 2.0, 2.0]))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"calls": [2, 1, 3, 2, 0]}, "without calls"),
        ({"groups": [0, 0]}, "same episodes"),
        ({"signals_C": [[1.0]]}, "9 calls"),
        ({"values_C": [[1.0]]}, "9 calls"),
    ],
)
def test_episodes_that_do_not_fit_are_refused(changed: dict, message: str):
    with pytest.raises(ValueError, match=message):
        everything(**changed)


def test_whole_numbers_are_refused_where_returns_would_lose_their_fractions():
    with pytest.raises(ValueError, match="floating point"):
        Episodes(rewards_E=torch.tensor([1, 0]), calls_E=torch.tensor([1, 1]), groups_E=torch.tensor([0, 0]))


@pytest.mark.parametrize(("name", "message"), [("gigpo", "states"), ("critic", "values")])
def test_what_a_strategy_needs_and_lacks(name: str, message: str):
    with pytest.raises(ValueError, match=message):
        credit(name, make_episodes())


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError, match="discont"):
        credit("discounted", make_episodes(), discont=0.5)


def test_returns_do_not_flow_between_episodes():
    ends = list(accumulate(CALLS))
    changed = [row[:] for row in SIGNALS]
    changed[1] = [100.0]

    one = CREDIT_STRATEGIES["critic"](everything(), normalise=False)
    other = CREDIT_STRATEGIES["critic"](everything(signals_C=changed), normalise=False)

    assert (one != other).nonzero().flatten().tolist() == [ends[0]]
