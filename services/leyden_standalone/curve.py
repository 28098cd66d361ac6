"""The learning curve as a picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Interval:
    """A success rate with its 95 % interval (Wilson score)."""

    mean: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, mean: float, n: int) -> "Interval":
        """Return the interval of `mean`, the share of successes among `n` episodes."""
        if n == 0:
            return cls(0.0, 0.0, 1.0, 0)
        z = 1.96
        centre = (mean + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * (mean * (1 - mean) / n + z * z / (4 * n * n)) ** 0.5
        # Rounding must not put the mean outside its interval.
        return cls(mean, min(mean, max(0.0, centre - half)), max(mean, min(1.0, centre + half)), n)

    def __str__(self) -> str:
        return f"{self.mean:.2f}  [{self.low:.2f}, {self.high:.2f}]  n={self.n}"


def draw_curve(path: Path, title: str, train: Sequence[float], evals: Mapping[str, Mapping[int, Interval]]) -> None:
    """Write a PNG.

    Args:
        path: the file.
        title: above the picture.
        train: mean reward of each step's batch; step 1 is first.
        evals: series name -> policy version -> held-out success.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), dpi=120)
    axes.plot(range(1, len(train) + 1), train, color="#8fb3d9", marker=".", label="training batch (sampled)")
    for name, points in evals.items():
        versions = sorted(points)
        means = [points[version].mean for version in versions]
        errors = [
            [points[v].mean - points[v].low for v in versions],
            [points[v].high - points[v].mean for v in versions],
        ]
        axes.errorbar(versions, means, yerr=errors, marker="o", capsize=3, label=name)
    axes.set(xlabel="policy version", ylabel="success", ylim=(-0.03, 1.03), title=title)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
