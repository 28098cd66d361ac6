"""Which settings of the selection of data a run may have."""

import pytest
from pydantic import ValidationError

from leyden_contracts import Algorithm, RunSpec, Selection


def spec(group_size: int = 4, **algorithm: object) -> RunSpec:
    fields = {"base_model": "m", "agent": "a:b", "grader": "a:c", "group_size": group_size, "algorithm": algorithm}
    return RunSpec.model_validate(fields)


def test_nothing_is_selected_unless_a_run_asks_for_it():
    algorithm = Algorithm(groups_per_step=3)
    assert algorithm.selection == Selection()
    assert algorithm.most_groups == 3
    assert all(Selection().admits(share) for share in (0, 0.5, 1))


@pytest.mark.parametrize(("most", "expected"), [(None, 12), (5, 5)])
def test_a_dynamic_step_is_bounded(most: int | None, expected: int):
    selection = {"dynamic": True, "most_groups_per_step": most}
    assert Algorithm(groups_per_step=3, selection=selection).most_groups == expected


@pytest.mark.parametrize(
    ("selection", "word"),
    [
        ({"most_groups_per_step": 64}, "set `dynamic`"),
        ({"dynamic": True, "most_groups_per_step": 8}, "above `groups_per_step`"),
        ({"dynamic": True, "most": 9}, "Extra inputs"),
        ({"success_reward": 0.5}, "`lowest_success`"),
        ({"lowest_success": 0.8, "highest_success": 0.2}, "swap them"),
        ({"lowest_success": 0.0}, "greater than 0"),
        ({"highest_success": 1.0}, "less than 1"),
        ({"longest_reply": 512}, "`sampling.max_tokens` (512)"),
        ({"lowest_success": 0.55, "highest_success": 0.6}, "further apart"),
    ],
)
def test_what_means_nothing_or_contradicts_itself_is_refused(selection: dict, word: str):
    with pytest.raises(ValidationError) as refusal:
        spec(selection=selection)
    assert word in str(refusal.value)


def test_dynamic_sampling_is_refused_where_equal_rewards_are_a_signal():
    with pytest.raises(ValidationError, match=r"leave `selection\.dynamic` out"):
        spec(advantage="reinforce++", least_episodes=1, selection={"dynamic": True})


@pytest.mark.parametrize(
    "selection",
    [
        {"dynamic": True, "most_groups_per_step": 9},
        {"lowest_success": 0.25, "highest_success": 0.75, "success_reward": 0.5},
        {"lowest_success": 0.3, "highest_success": 0.35},
        {"longest_reply": 511, "longest_prompt": 1},
        {"mastered_last": True, "success_reward": 0.5},
    ],
)
def test_what_fits_together_is_accepted(selection: dict):
    """A third of the successes is what a group of three has, of which one of four failed."""
    assert spec(selection=selection).algorithm.selection == Selection.model_validate(selection)
