"""What the results say. Words follow from intervals alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from learning.grid import STUDIES, Strategy, Study
from learning.intervals import Interval
from learning.results import Result, newest

CONTROL_BOUND = 0.05
"""A control has improved where the whole interval of its gain lies above this."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One strategy of one study, over its seeds."""

    study: Study
    strategy: Strategy
    before: float
    after: float
    gain: Interval
    area: Interval
    gain_difference: Interval | None
    """To the reference, seed by seed; None for the reference itself and for controls."""
    area_difference: Interval | None

    @property
    def verdict(self) -> str:
        """What is shown of the gain, then of the speed."""
        if self.strategy.expected == "control":
            return "improved" if self.gain.low > CONTROL_BOUND else "did not improve"
        if self.gain_difference is None or self.area_difference is None:
            return "reference"
        return f"gain: {in_words(self.gain_difference)}; speed: {in_words(self.area_difference)}"


def in_words(difference: Interval) -> str:
    """Say whether a difference is shown, by the interval alone."""
    if difference.low > 0:
        return "helps"
    return "hurts" if difference.high < 0 else "no difference shown"


def findings(results: Sequence[Result]) -> Iterator[Finding]:
    """Yield what was found of each strategy with two seeds or more, in the grid's order."""
    cells = newest(results)
    for study in STUDIES.values():
        for strategy in study.strategies:
            own = _seeds(cells, study, strategy)
            if len(own) > 1:
                yield _finding(study, strategy, own, _seeds(cells, study, study.reference))


def problems(found: Sequence[Finding]) -> list[str]:
    """Return what must not be: a control that improved, an agent that must learn and did not."""
    wrong = []
    for one in found:
        name = f"{one.study.name}, {one.strategy.name}"
        if one.strategy.expected == "control" and one.gain.low > CONTROL_BOUND:
            wrong.append(f"{name}: a negative control improved, by {one.gain}")
        must = one.study.must_gain
        if one.strategy is one.study.reference and must is not None and one.gain.low <= must:
            wrong.append(f"{name}: the gain {one.gain} does not lie above {must}")
    return wrong


def _seeds(cells: dict[tuple[str, str, int], Result], study: Study, strategy: Strategy) -> dict[int, Result]:
    return {
        seed: one for (where, name, seed), one in sorted(cells.items()) if (where, name) == (study.name, strategy.name)
    }


def _finding(study: Study, strategy: Strategy, own: dict[int, Result], reference: dict[int, Result]) -> Finding:
    compared = strategy is not study.reference and strategy.expected != "control"
    pairs = [(own[seed], reference[seed]) for seed in own if seed in reference] if compared else []
    enough = len(pairs) > 1
    return Finding(
        study=study,
        strategy=strategy,
        before=_mean([one.before for one in own.values()]),
        after=_mean([one.after for one in own.values()]),
        gain=Interval.of([one.gain for one in own.values()]),
        area=Interval.of([one.area for one in own.values()]),
        gain_difference=Interval.of([one.gain - other.gain for one, other in pairs]) if enough else None,
        area_difference=Interval.of([one.area - other.area for one, other in pairs]) if enough else None,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
