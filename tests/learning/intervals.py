"""Means with 95 % intervals (Student's t), from a few independent numbers."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Two-sided 95 % quantiles, from one degree of freedom on; for more than these, the last is a little too wide."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, and between what bounds it lies."""

    mean: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Interval":
        """Return the interval of the mean of `values`. Raises ValueError where there are fewer than two."""
        if len(values) < 2:
            raise ValueError("an interval needs two numbers or more")
        mean, quantile = statistics.fmean(values), _T_95[min(len(values) - 1, len(_T_95)) - 1]
        half = quantile * statistics.stdev(values) / len(values) ** 0.5
        return cls(mean, mean - half, mean + half, len(values))

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"
