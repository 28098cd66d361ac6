"""The picture: a column for each study, learning curves above, gains with their intervals below."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from learning.findings import Finding
from learning.results import Result, newest

_SMOOTH = 5
"""Steps that a point of a curve is the mean of."""


def draw(path: Path, found: Sequence[Finding], results: Sequence[Result]) -> None:
    """Write a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    studies = list(dict.fromkeys(one.study.name for one in found))
    figure, axes = pyplot.subplots(2, len(studies), figsize=(5.5 * len(studies), 8), dpi=100, squeeze=False)
    for column, study in enumerate(studies):
        own = [one for one in found if one.study.name == study]
        _curves(axes[0][column], study, own, results)
        _gains(axes[1][column], own)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def _curves(axes: Any, study: str, found: Sequence[Finding], results: Sequence[Result]) -> None:
    for one in found:
        curves = [each.curve for each in newest(results).values() if _is_of(each, one)]
        mean = np.mean(curves, axis=0)
        width = min(_SMOOTH, mean.size)
        smooth = np.convolve(mean, np.ones(width) / width, "valid")
        control = one.strategy.expected == "control"
        axes.plot(
            np.arange(smooth.size) + width,
            smooth,
            label=one.strategy.name,
            ls=":" if control else "-",
            color=_color(one),
        )
    axes.set(title=study, xlabel="step", ylabel="mean score of the step's episodes", ylim=(0, 1.02))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def _gains(axes: Any, found: Sequence[Finding]) -> None:
    for row, one in enumerate(found):
        error = [[one.gain.mean - one.gain.low], [one.gain.high - one.gain.mean]]
        axes.errorbar(one.gain.mean, row, xerr=error, marker="o", capsize=3, color=_color(one))
    axes.axvline(0, color="black", lw=0.8)
    axes.set_yticks(range(len(found)), [one.strategy.name for one in found])
    axes.invert_yaxis()
    axes.set(xlabel="gain on held-out tasks, 95 % interval")
    axes.grid(alpha=0.3)


def _is_of(result: Result, finding: Finding) -> bool:
    return (result.study, result.strategy) == (finding.study.name, finding.strategy.name)


def _color(one: Finding) -> str:
    return f"C{one.study.strategies.index(one.strategy)}"
