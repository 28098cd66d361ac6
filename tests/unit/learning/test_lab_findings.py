"""Intervals, verdicts and the page, on numbers made by hand."""

from pathlib import Path

import pytest

from learning import page, plot
from learning.findings import Finding, findings, in_words, problems
from learning.grid import STUDIES
from learning.intervals import Interval
from learning.results import Result


def _cells(study: str, strategy: str, gains: list[float], area: float = 0.4) -> list[Result]:
    curve = [area, area]
    return [Result(study, strategy, seed, "", 0.3, 0.3 + gain, curve, 1.0) for seed, gain in enumerate(gains)]


def _of(found: list[Finding], strategy: str) -> Finding:
    return next(one for one in found if one.strategy.name == strategy)


def test_an_interval_by_hand() -> None:
    found = Interval.of([1.0, 2.0, 3.0, 4.0, 5.0])
    half = 2.776 * 2.5**0.5 / 5**0.5
    assert (found.mean, found.low, found.high, found.n) == pytest.approx((3.0, 3 - half, 3 + half, 5))
    assert Interval.of([0.5] * 100).low == 0.5
    with pytest.raises(ValueError, match="two numbers"):
        Interval.of([1.0])


@pytest.mark.parametrize(("low", "high", "word"), [
    (0.01, 0.2, "helps"), (-0.2, -0.01, "hurts"),
    (-0.01, 0.2, "no difference shown"), (0.0, 0.0, "no difference shown"),
])  # fmt: skip
def test_words_follow_from_the_interval(low: float, high: float, word: str) -> None:
    assert in_words(Interval(0.5, low, high, 5)) == word


def test_differences_are_paired_by_seed() -> None:
    # The seeds differ widely, the strategies by a steady little.
    hard = [0.0, 0.1, 0.2, 0.3, 0.4]
    easy = [gain + 0.05 + 0.001 * seed for seed, gain in enumerate(hard)]
    found = list(findings(_cells("three calls", "identical", hard) + _cells("three calls", "gigpo", easy[::-1])[::-1]))
    assert _of(found, "gigpo").verdict == "gain: no difference shown; speed: no difference shown"
    found = list(findings(_cells("three calls", "identical", hard) + _cells("three calls", "gigpo", easy)[::-1]))
    assert _of(found, "gigpo").gain_difference.mean == pytest.approx(0.052)
    assert _of(found, "gigpo").verdict == "gain: helps; speed: no difference shown"
    assert _of(found, "identical").verdict == "reference"


def test_seeds_that_the_reference_lacks_are_not_compared() -> None:
    cells = _cells("three calls", "identical", [0.1, 0.2, 0.3]) + _cells("three calls", "gigpo", [0.3, 0.4, 0.5, 0.9])
    difference = _of(list(findings(cells)), "gigpo").gain_difference
    assert (difference.n, difference.mean) == (3, pytest.approx(0.2))


def test_a_control_that_improves_is_caught() -> None:
    honest = _cells("three calls", "shuffled rewards", [0.02, -0.03, 0.06, 0.01, -0.02])
    assert problems(list(findings(honest))) == []
    planted = _cells("three calls", "shuffled rewards", [0.12, 0.10, 0.15, 0.11, 0.13])
    found = list(findings(planted))
    assert found[0].verdict == "improved"
    (problem,) = problems(found)
    assert "three calls, shuffled rewards" in problem


@pytest.mark.parametrize(("gains", "wrong"), [([0.5, 0.52, 0.51, 0.49, 0.5], 0), ([0.5, 0.9, 0.1, 0.0, 0.5], 1)])
def test_the_calculator_must_learn(gains: list[float], wrong: int) -> None:
    assert len(problems(list(findings(_cells("calculator", "identical", gains))))) == wrong


def test_a_calculator_that_learns_without_rewards_is_caught_by_its_control() -> None:
    cells = _cells("calculator", "never published", [0.5] * 4 + [0.51])
    assert len(problems(list(findings(cells)))) == 1


def _all() -> list[Result]:
    return [
        one
        for study in STUDIES.values()
        for strategy in study.strategies
        for one in _cells(study.name, strategy.name, [0.1, 0.2, 0.15])
    ]


def test_the_page_holds_a_row_for_each_strategy_and_keeps_its_words(tmp_path: Path) -> None:
    file = tmp_path / "learning.md"
    file.write_text(f"above\n{page.BEGIN}\nold\n{page.END}\nbelow\n")
    found = list(findings(_all()))
    for _ in range(2):
        page.write(file, tmp_path / "learning.png", found, 600.0)
    text = file.read_text()
    assert text.startswith("above\n") and text.endswith("\nbelow\n") and "old" not in text
    assert text.count("no difference shown") == 2 * sum(one.gain_difference is not None for one in found)
    assert text.count("](learning.png)") == 1
    assert sum(line.startswith("| ") for line in text.splitlines()) == len(found) + len(STUDIES)


def test_a_page_without_markers_is_not_written_to(tmp_path: Path) -> None:
    file = tmp_path / "learning.md"
    file.write_text(page.BEGIN)
    with pytest.raises(ValueError, match="once each"):
        page.write(file, tmp_path / "learning.png", [], 0.0)
    assert file.read_text() == page.BEGIN


def test_the_docs_page_has_its_markers() -> None:
    text = (Path(__file__).parents[3] / "infra/docs/learning.md").read_text()
    assert text.count(page.BEGIN) == text.count(page.END) == 1


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    cells = _all()
    plot.draw(tmp_path / "learning.png", list(findings(cells)), cells)
    assert (tmp_path / "learning.png").read_bytes().startswith(b"\x89PNG")
