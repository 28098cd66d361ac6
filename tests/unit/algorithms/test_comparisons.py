"""Advantages: against the papers' formulas in plain Python, and what must hold whatever the rewards."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from leyden_algorithms import COMPARISONS, WITHIN_GROUPS, group_labels, state_hash
from leyden_algorithms.advantages import EPSILON
from support import plain_algorithms as plain

REWARDS = [1.0, 0.0, 0.25, 1.0, -2.0, 3.0, 0.5, 0.5, 0.5, 7.0]
GROUPS = [0, 0, 0, 0, 4, 4, 2, 2, 2, 9]
SINGLE = sorted(COMPARISONS.keys() - {"gdpo"})
PLAIN = {
    "grpo": partial(plain.grpo, scale=True, epsilon=EPSILON),
    "dr_grpo": partial(plain.grpo, scale=False, epsilon=EPSILON),
    "rloo": plain.rloo,
    "reinforce++": partial(plain.reinforce_plus_plus, baseline=False, epsilon=EPSILON),
    "reinforce++_baseline": partial(plain.reinforce_plus_plus, baseline=True, epsilon=EPSILON),
}

rewards_of_two_groups = st.lists(
    st.tuples(st.sampled_from([0, 1]), st.integers(-8, 8).map(lambda n: n / 4)), min_size=2, max_size=9
)


def compare(name: str, rewards: list, groups: list[int], **options: object) -> Tensor:
    values = torch.tensor(rewards, dtype=torch.float64)
    return COMPARISONS[name](values, torch.tensor(groups), torch.arange(len(groups)), **options)


@pytest.mark.parametrize("name", SINGLE)
def test_each_is_what_its_paper_says(name: str):
    assert compare(name, REWARDS, GROUPS).tolist() == pytest.approx(PLAIN[name](REWARDS, GROUPS), abs=1e-12)


@pytest.mark.parametrize("name", SINGLE)
@settings(max_examples=25)
@given(drawn=rewards_of_two_groups)
def test_each_is_what_its_paper_says_for_any_rewards(name: str, drawn: list):
    groups, rewards = [g for g, _ in drawn], [r for _, r in drawn]

    assert compare(name, rewards, groups).tolist() == pytest.approx(PLAIN[name](rewards, groups), abs=1e-9)


def test_rloo_by_hand():
    # Without the first, the others' mean is 1; without the second 5/2; without the third 3/2.
    assert compare("rloo", [3.0, 0.0, 2.0], [0, 0, 0]).tolist() == pytest.approx([2.0, -2.5, 0.5])


def test_dr_grpo_by_hand():
    assert compare("dr_grpo", [3.0, 0.0, 0.0], [0, 0, 0]).tolist() == pytest.approx([2.0, -1.0, -1.0])


def test_reinforce_plus_plus_by_hand():
    # Mean 2, deviations -2, -1, 0, 3: variance 14/3. Groups make no difference.
    expected = [x / math.sqrt(14 / 3) for x in (-2, -1, 0, 3)]

    assert compare("reinforce++", [0.0, 1.0, 2.0, 5.0], [0, 1, 1, 2]).tolist() == pytest.approx(expected, abs=1e-5)


def test_reinforce_plus_plus_with_a_baseline_by_hand():
    # Minus their groups' means: -1, 1, -3, 3: variance 20/3.
    expected = [x / math.sqrt(20 / 3) for x in (-1, 1, -3, 3)]

    found = compare("reinforce++_baseline", [0.0, 2.0, 0.0, 6.0], [0, 0, 1, 1])

    assert found.tolist() == pytest.approx(expected, abs=1e-5)


def test_gdpo_is_what_its_paper_says():
    rewards = [[1.0, 5.0], [0.0, 4.0], [0.0, 0.0], [1.0, 1.0], [0.0, 2.0], [0.0, 3.0]]
    groups = [0, 0, 0, 0, 1, 1]
    weights = (1.0, 0.5)

    found = compare("gdpo", rewards, groups, weights=weights)

    assert found.tolist() == pytest.approx(plain.gdpo(rewards, groups, list(weights), EPSILON), abs=1e-12)


def test_gdpo_tells_apart_what_a_sum_does_not():
    # Of one correct and short, one correct and one short answer, a sum puts the last two together.
    rewards = [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]

    apart = compare("gdpo", rewards, [0] * 5, weights=(1.0, 0.3), batch_normalise=False).tolist()

    assert len({round(value, 6) for value in apart}) == 4
    assert compare("grpo", [sum(row) for row in rewards], [0] * 5)[1:3].unique().numel() == 1


def test_a_reward_on_a_larger_scale_does_not_drown_the_other_in_gdpo():
    small = compare("gdpo", [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [0] * 3)
    large = compare("gdpo", [[1.0, 0.0], [0.0, 1000.0], [0.0, 0.0]], [0] * 3)

    assert small.tolist() == pytest.approx(large.tolist(), abs=1e-4)


def test_gdpo_without_its_last_stage_grows_with_the_number_of_rewards():
    rewards = [[1.0, 1.0], [0.0, 0.0]]

    assert compare("gdpo", rewards, [0, 0], batch_normalise=False).tolist() == pytest.approx(
        [2**0.5, -(2**0.5)], abs=1e-5
    )
    assert compare("gdpo", rewards, [0, 0]).tolist() == pytest.approx([0.5**0.5, -(0.5**0.5)], abs=1e-5)


@pytest.mark.parametrize("name", SINGLE)
@settings(max_examples=20)
@given(drawn=rewards_of_two_groups, constant=st.integers(-40, 40), order=st.randoms(use_true_random=False))
def test_order_and_a_constant_change_no_advantage(name: str, drawn: list, constant: int, order):
    groups, rewards = [g for g, _ in drawn], [r for _, r in drawn]
    found = compare(name, rewards, groups).tolist()
    shuffled = order.sample(range(len(drawn)), len(drawn))

    permuted = compare(name, [rewards[i] for i in shuffled], [groups[i] for i in shuffled]).tolist()

    assert permuted == pytest.approx([found[i] for i in shuffled], abs=1e-9)
    assert compare(name, [reward + constant for reward in rewards], groups).tolist() == pytest.approx(found, abs=1e-9)


@pytest.mark.parametrize("name", ["grpo", "reinforce++", "reinforce++_baseline"])
@settings(max_examples=20)
@given(drawn=rewards_of_two_groups, factor=st.sampled_from([0.5, 3.0, 100.0]))
def test_the_scale_of_rewards_does_not_matter_where_they_are_normalised(name: str, drawn: list, factor: float):
    groups, rewards = [g for g, _ in drawn], [r for _, r in drawn]

    scaled = compare(name, [factor * reward for reward in rewards], groups, epsilon=0.0 + 1e-12)

    assert scaled.tolist() == pytest.approx(compare(name, rewards, groups, epsilon=1e-12).tolist(), abs=1e-6)


@pytest.mark.parametrize("name", ["dr_grpo", "rloo"])
def test_the_scale_of_rewards_stays_where_they_are_not_normalised(name: str):
    scaled = compare(name, [3 * reward for reward in REWARDS], GROUPS)

    assert scaled.tolist() == pytest.approx((3 * compare(name, REWARDS, GROUPS)).tolist())


@pytest.mark.parametrize("name", sorted(WITHIN_GROUPS | {"reinforce++_baseline"}))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reward", [0.1, 0.3, 1e8])
def test_equal_rewards_and_a_group_of_one_have_no_advantage_at_all(name: str, dtype: torch.dtype, reward: float):
    values = torch.tensor([reward, reward, reward, 7.0], dtype=dtype)

    found = COMPARISONS[name](values, torch.tensor([0, 0, 0, 1]), torch.arange(4))

    assert found.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_makes_no_advantage(name: str, dtype: torch.dtype):
    exact = torch.tensor(0.3, dtype=dtype)
    values = torch.stack(
        [exact, exact.nextafter(torch.ones((), dtype=dtype)), exact.nextafter(torch.zeros((), dtype=dtype))]
    )

    assert COMPARISONS[name](values, torch.zeros(3, dtype=torch.int64), torch.arange(3)).tolist() == [0, 0, 0]


def test_a_small_difference_on_a_large_number_is_one():
    assert compare("dr_grpo", [1e6, 1e6 + 0.5], [0, 0]).tolist() == pytest.approx([-0.25, 0.25])


@pytest.mark.parametrize("name", SINGLE)
def test_nothing_to_compare(name: str):
    nothing = torch.zeros(0, dtype=torch.int64)

    assert COMPARISONS[name](torch.zeros(0), nothing, nothing).shape == (0,)


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_no_number_is_refused(name: str, bad: float):
    with pytest.raises(ValueError, match="NaN or infinite"):
        compare(name, [[1.0], [bad]] if name == "gdpo" else [1.0, bad], [0, 0])


@pytest.mark.parametrize("name", COMPARISONS)
def test_the_wrong_number_of_rewards_is_refused(name: str):
    with pytest.raises(ValueError, match="shape"):
        compare(name, [1.0, 0.0] if name == "gdpo" else [[1.0], [0.0]], [0, 0])


def test_gdpo_wants_a_weight_for_each_reward():
    with pytest.raises(ValueError, match="3 weights for 2 rewards"):
        compare("gdpo", [[1.0, 0.0], [0.0, 0.0]], [0, 0], weights=(1.0, 1.0, 1.0))


@pytest.mark.parametrize("name", SINGLE)
def test_a_member_with_many_numbers_weighs_as_much_as_another(name: str):
    once = compare(name, [1.0, 0.0, 0.5], [0, 0, 0])

    values = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.5, 0.5], dtype=torch.float64)
    members = torch.tensor([7, 7, 7, 3, 5, 5])
    often = COMPARISONS[name](values, torch.zeros(6, dtype=torch.int64), members)

    assert often.tolist() == pytest.approx(once[torch.tensor([0, 0, 0, 1, 2, 2])].tolist())


def test_rloo_leaves_all_numbers_of_a_member_out_of_its_baseline():
    values = torch.tensor([4.0, 0.0, 1.0], dtype=torch.float64)

    found = COMPARISONS["rloo"](values, torch.zeros(3, dtype=torch.int64), torch.tensor([0, 0, 1]))

    # The first member's baseline is 1, the second's is (4 + 0) / 2.
    assert found.tolist() == pytest.approx([3.0, -1.0, -1.0])


def test_labels_group_by_task_or_by_task_and_role():
    tasks, roles = ["a", "a", "b", "b"], ["writer", "checker", "writer", "writer"]

    assert group_labels(tasks).tolist() == [0, 0, 1, 1]
    assert group_labels(tasks, roles).tolist() == [0, 1, 2, 2]


def test_a_state_hash_is_the_same_everywhere_and_fits_int64():
    assert state_hash(b"\x01\x00\x00\x00") == state_hash(b"\x01\x00\x00\x00") != state_hash(b"\x02\x00\x00\x00")
    assert state_hash(b"") == -5426141060434712860
    assert torch.tensor([state_hash(bytes([i])) for i in range(50)], dtype=torch.int64).unique().numel() == 50
