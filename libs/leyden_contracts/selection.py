"""Which finished groups a step trains on, which it waits for, and in what order tasks come."""

from typing import Self

from pydantic import Field, model_validator

from leyden_contracts.base import Message


class Selection(Message):
    """What is trained on of what was sampled. What is left out is counted, and never becomes a zero (I6)."""

    dynamic: bool = False
    """A step waits for `groups_per_step` groups with a signal: one without is consumed with the step, and replaced by
    another (dynamic sampling of DAPO, arXiv 2503.14476, section 3.2)."""
    most_groups_per_step: int | None = Field(default=None, ge=1)
    """For `dynamic`: after so many groups, with a signal or without, the step is taken with what there is. None: four
    times `groups_per_step`."""
    longest_prompt: int | None = Field(default=None, ge=1)
    """Tokens; an episode in which a trained role was shown more in one call is left out as `too_long`."""
    longest_reply: int | None = Field(default=None, ge=1)
    """The same, of what a trained role answered in one call."""
    success_reward: float = Field(default=1, allow_inf_nan=False)
    """An episode whose `reward` is at least this is a success."""
    lowest_success: float | None = Field(default=None, gt=0, le=1)
    """A group with a smaller share of successes is left out as `too_hard`."""
    highest_success: float | None = Field(default=None, ge=0, lt=1)
    """A group with a larger share of successes is left out as `too_easy`."""
    mastered_last: bool = False
    """A task that comes again, and had nothing but successes when it came last, lets those that wait go first."""

    @property
    def bounds_success(self) -> bool:
        """Whether a group may be too easy or too hard."""
        return self.lowest_success is not None or self.highest_success is not None

    def admits(self, share: float) -> bool:
        """Say whether a group with this share of successes is neither too hard nor too easy."""
        return not self.too_hard(share) and not self.too_easy(share)

    def too_hard(self, share: float) -> bool:
        """Say whether `share` is below what is trained on."""
        return self.lowest_success is not None and share < self.lowest_success

    def too_easy(self, share: float) -> bool:
        """Say whether `share` is above what is trained on."""
        return self.highest_success is not None and share > self.highest_success

    @model_validator(mode="after")
    def _settings_are_used(self) -> Self:
        if self.most_groups_per_step is not None and not self.dynamic:
            raise ValueError("`selection.most_groups_per_step` bounds dynamic sampling: set `dynamic`, or leave it out")
        used = self.bounds_success or self.mastered_last
        if self.success_reward != 1 and not used:
            raise ValueError(
                "`selection.success_reward` is for `lowest_success`, `highest_success` and `mastered_last`: set one of "
                "them, or leave it out"
            )
        low, high = self.lowest_success, self.highest_success
        if low is not None and high is not None and low > high:
            raise ValueError(f"`lowest_success` is above `highest_success` ({low} > {high}): swap them")
        return self

    def check_fits(self, group_size: int, least_episodes: int, max_tokens: int) -> None:
        """Raise ValueError where a group of the run, or a reply, can never be within, or never be out of, the bounds.

        Args:
            group_size: episodes of a group.
            least_episodes: a group with fewer is left out anyhow.
            max_tokens: no reply is longer.
        """
        if self.longest_reply is not None and self.longest_reply >= max_tokens:
            raise ValueError(
                f"no reply is longer than `sampling.max_tokens` ({max_tokens}): set `selection.longest_reply` to less, "
                "or leave it out"
            )
        sizes = range(least_episodes, group_size + 1)
        if not any(self.admits(successes / size) for size in sizes for successes in range(size + 1)):
            raise ValueError(
                f"no group of up to {group_size} episodes has a share of successes between `lowest_success` and "
                "`highest_success`: set them further apart, or `group_size` to more"
            )
