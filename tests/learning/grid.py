"""What is compared with what, and what was expected of it before anything was run.

All strategies of a study share everything but what is named here: tasks, model, steps, learning rate. The first one is
the reference that the others are compared with.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from leyden_agents.calculator import recipe

SEEDS = 8
Expected = Literal["reference", "helps", "no help", "hurts", "control"]
"""`control`: it must not learn."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to train, and what was expected of it."""

    name: str
    expected: Expected
    why: str
    algorithm: dict[str, Any] = field(default_factory=dict)
    """What it sets beside the study's."""
    frozen: tuple[str, ...] = ()
    """Roles that are not trained."""
    signals: bool = False
    """Whether intermediate rewards are recorded."""


@dataclass(frozen=True, slots=True)
class Study:
    """One agent, and the strategies that train it."""

    name: str
    environment: str
    roles: tuple[str, ...]
    steps: int
    group_size: int
    algorithm: dict[str, Any]
    held_out: int
    """Episodes of one evaluation."""
    strategies: tuple[Strategy, ...]
    must_gain: float | None = None
    """The reference's gain must lie above this."""
    seeds: int = SEEDS

    @property
    def reference(self) -> Strategy:
        """What the others are compared with."""
        return self.strategies[0]

    def strategy(self, name: str) -> Strategy:
        """Return the strategy of this name. Raises KeyError."""
        return {one.name: one for one in self.strategies}[name]


def _controls() -> tuple[Strategy, ...]:
    why = {
        "shuffled rewards": "rewards tell nothing of the replies",
        "learning rate 0": "nothing moves",
        "never published": "the agent never sees what was learned",
    }
    settings: dict[str, dict[str, Any]] = {
        "shuffled rewards": {"control": "shuffled_rewards"},
        "learning rate 0": {"learning_rate": 0.0},
        "never published": {"control": "unpublished", "max_staleness": 1000},
    }
    return tuple(Strategy(name, "control", why[name], settings[name]) for name in settings)


_CALCULATOR = Study(
    name="calculator",
    environment="calculator",
    roles=("policy",),
    steps=recipe.STEPS,
    group_size=8,
    algorithm={"learning_rate": 2e-3, "groups_per_step": recipe.GROUPS_PER_STEP},
    held_out=400,
    strategies=(Strategy("identical", "reference", "the demo's recipe"), *_controls()),
    must_gain=0.3,
)

_CREDIT = (
    Strategy("identical", "reference", "every call is credited with the luck and the other doors"),
    Strategy(
        "identical, batch",
        "no help",
        "compared with the whole batch, as the critic's advantages are normalised; luck is in both",
        {"advantage": "reinforce++"},
    ),
    Strategy(
        "discounted",
        "no help",
        "earlier calls count less, though no door counts less than another",
        {"credit": "discounted"},
    ),
    Strategy(
        "step_rewards",
        "helps",
        "a rule tells each call of its own door; luck stays in the comparison",
        {"credit": "step_rewards"},
        signals=True,
    ),
    Strategy(
        "gigpo",
        "helps",
        "calls that saw the same luck and the same doors are compared with each other",
        {"credit": "gigpo"},
    ),
    Strategy(
        "critic",
        "helps",
        "the value of what a call was shown takes luck and earlier doors out",
        {"credit": "critic"},
    ),
)

_THREE_CALLS = Study(
    name="three calls",
    environment="three_calls",
    roles=("policy",),
    steps=60,
    group_size=16,
    algorithm={"learning_rate": 1e-2, "groups_per_step": 4},
    held_out=540,
    strategies=(*_CREDIT, *_controls()),
)

_TWO_ROLES = Study(
    name="two roles",
    environment="planner_solver",
    roles=("planner", "solver"),
    steps=40,
    group_size=8,
    algorithm={"learning_rate": 1e-2, "groups_per_step": 8},
    held_out=540,
    # Its score walks widely where rewards say nothing: a planner that always hands over, or never, is all it takes.
    seeds=16,
    strategies=(
        Strategy("jointly", "reference", "all calls of a task's episodes are compared with each other"),
        Strategy(
            "apart",
            "helps",
            "the solver is compared with episodes that asked it, not with those that went without",
            {"compare_roles": "apart"},
        ),
        Strategy("solver frozen", "hurts", "only the planner learns", frozen=("solver",)),
        Strategy("planner frozen", "hurts", "only the solver learns", frozen=("planner",)),
        *_controls(),
    ),
)

STUDIES: dict[str, Study] = {study.name: study for study in (_CALCULATOR, _THREE_CALLS, _TWO_ROLES)}


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One training run of the grid."""

    study: str
    strategy: str
    seed: int


def all_cells(seeds: int | None = None) -> Iterator[Cell]:
    """Yield the whole grid, seed by seed, so that what is finished early is already a comparison.

    `seeds` is for all studies; None: as many as each has.
    """
    for seed in range(seeds or max(study.seeds for study in STUDIES.values())):
        for study in STUDIES.values():
            if seed < (seeds or study.seeds):
                yield from (Cell(study.name, strategy.name, seed) for strategy in study.strategies)
