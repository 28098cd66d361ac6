"""The learning curve can be drawn whatever the evaluation gave."""

from pathlib import Path

import pytest

from leyden_standalone.curve import Interval, draw_curve


@pytest.mark.parametrize("n", [1, 100, 200, 300])
@pytest.mark.parametrize("successes", [0.0, 0.5, 1.0])
def test_an_interval_holds_its_mean(n: int, successes: float) -> None:
    found = Interval.of(successes, n)
    assert 0 <= found.low <= found.mean <= found.high <= 1


def test_known_interval() -> None:
    found = Interval.of(0.9, 200)
    assert (round(found.low, 3), round(found.high, 3)) == (0.851, 0.934)


def test_a_curve_from_none_to_all_is_drawn(tmp_path: Path) -> None:
    evals = {"held-out": {0: Interval.of(0.0, 100), 9: Interval.of(1.0, 200)}}
    draw_curve(tmp_path / "curve.png", "title", [0.1, 1.0], evals)
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
