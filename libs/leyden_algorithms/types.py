"""What the strategies are given. Three dataclasses: episodes of a step, tokens of some samples, totals of a step."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Episodes:
    """The episodes of a step. Their calls stand one after another: episode by episode, in the order they were made.

    To train several roles *jointly*, give each episode once, with all its calls. To train them *apart*, give each
    episode once for each of its roles, with that role's calls, and let `groups_E` tell the roles apart
    (`group_labels(tasks, roles)`).
    """

    rewards_E: Tensor
    """The reward of each episode, shape [E]; or K rewards of each, shape [E, K], for a comparison that takes them."""
    calls_E: Tensor
    """How many calls each made: integers from 1, shape [E]; C is their sum."""
    groups_E: Tensor
    """Episodes with the same label are compared with each other: integers, shape [E]. See `group_labels`."""
    signals_C: Tensor | None = None
    """Intermediate reward of each call, shape [C]; None: there are none."""
    states_C: Tensor | None = None
    """A hash of what each call's model was shown (`state_hash`), int64, shape [C]."""
    values_C: Tensor | None = None
    """What a critic expected at each call, shape [C]."""

    def __post_init__(self) -> None:
        """Raise ValueError where shapes or types do not fit, or an episode made no call."""
        episodes, calls = self.calls_E.numel(), int(self.calls_E.sum())
        if self.rewards_E.shape[:1] != (episodes,) or self.groups_E.shape != (episodes,):
            raise ValueError("rewards, calls and groups must be of the same episodes")
        if not self.rewards_E.is_floating_point():
            raise ValueError(f"rewards must be floating point numbers, not {self.rewards_E.dtype}")
        if bool((self.calls_E < 1).any()):
            raise ValueError("an episode without calls has nothing to give credit to")
        for per_call in (self.signals_C, self.states_C, self.values_C):
            if per_call is not None and per_call.shape != (calls,):
                raise ValueError(f"expected one number for each of the {calls} calls, not shape {per_call.shape}")

    @property
    def reward_E(self) -> Tensor:
        """The one reward of each episode. Raises ValueError where there are several."""
        if self.rewards_E.dim() != 1:
            raise ValueError("this credit strategy needs one reward for each episode: sum them first")
        return self.rewards_E


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Response tokens of some samples (a sample is one call), one after another, under three policies.

    *sampled* made the tokens; *old* is where the trust region stands; *current* is in training. Decoupled PPO (arXiv
    2110.00641, section 3) keeps the last two apart from the first: a loss clips current / old, a correction weighs
    each token by old / sampled. Where old logprobs were not computed, the engine's stand in: `old_T = sampled_T`, and
    every correction weighs 1. All logprobs are natural logs of the distribution at the sampling temperature.
    """

    current_T: Tensor
    """Of the policy in training; carries the gradient."""
    old_T: Tensor
    """Of the learner's own policy before the step (or the epochs) began, as the learner computed them."""
    sampled_T: Tensor
    """Of the engine that sampled the tokens, as it recorded them."""
    advantages_T: Tensor
    """Of each token's call."""
    lengths_S: Tensor
    """Tokens of each sample: integers, shape [S]; T is their sum. A sample is never split."""

    def __post_init__(self) -> None:
        """Raise ValueError where the shapes do not fit."""
        shapes = {tuple(one.shape) for one in (self.current_T, self.old_T, self.sampled_T, self.advantages_T)}
        if shapes != {(int(self.lengths_S.sum()),)}:
            raise ValueError(f"logprobs and advantages must be of the same tokens, not of shapes {sorted(shapes)}")


@dataclass(frozen=True, slots=True)
class Totals:
    """What a whole step averages over: all its micro-batches, on all processes.

    Dividing by these makes a sum over micro-batches equal the loss of the undivided batch. Where gradients are averaged
    over P processes (DDP), multiply the loss by P.
    """

    tokens: int
    samples: int

    def __post_init__(self) -> None:
        """Raise ValueError where there is nothing to average over."""
        if self.tokens < 1 or self.samples < 1:
            raise ValueError("a step needs at least one sample with one token")
