"""A cell trains and measures; a grid of cells can be stopped and gone on with."""

import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from learning import __main__ as command
from learning import page, running
from learning.cells import make_spec, run, settings
from learning.grid import STUDIES, Cell, Study, all_cells
from learning.results import Result, append, load, newest

SMALL = replace(STUDIES["three calls"], steps=2, held_out=54)
ROLES = replace(STUDIES["two roles"], steps=2, held_out=54)


@pytest.fixture(autouse=True)
def _threads_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The grid sets this for its processes."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def _run(study: Study, name: str, **algorithm: object) -> Result:
    return run(replace(study, algorithm=study.algorithm | algorithm), study.strategy(name), seed=1)


@pytest.mark.parametrize("name", [one.name for one in SMALL.strategies])
def test_each_strategy_runs(name: str) -> None:
    result = _run(SMALL, name)
    assert len(result.curve) == 2
    assert 0 <= result.before <= 1


@pytest.mark.parametrize("name", [one.name for one in ROLES.strategies])
def test_each_way_with_two_roles_runs(name: str) -> None:
    assert len(_run(ROLES, name).curve) == 2


def test_the_same_cell_gives_the_same_numbers() -> None:
    one, other = (_run(SMALL, "identical", learning_rate=0.05) for _ in range(2))
    assert replace(one, cpu_s=0) == replace(other, cpu_s=0)


def test_what_is_learned_changes_what_is_played_unless_it_is_not_published() -> None:
    base, trained, kept = (_run(SMALL, name, **a) for name, a in (
        ("learning rate 0", {}), ("identical", {"learning_rate": 0.3}),
        ("never published", {"learning_rate": 0.3}),
    ))  # fmt: skip
    assert base.curve[0] == trained.curve[0] == kept.curve[0]
    assert base.curve == kept.curve
    assert base.after == kept.after
    assert (base.curve[1], base.after) != (trained.curve[1], trained.after)


def test_every_cell_of_the_grid_is_a_run_that_would_be_accepted() -> None:
    cells = list(all_cells(5))
    assert len(cells) == len(set(cells))
    for cell in cells:
        study = STUDIES[cell.study]
        make_spec(study, study.strategy(cell.strategy), cell.seed)


def test_strategies_of_a_study_differ_in_their_settings() -> None:
    for study in STUDIES.values():
        assert len({settings(study, one, 0) for one in study.strategies}) == len(study.strategies)


def _result(cell: Cell, **more: object) -> Result:
    study = STUDIES[cell.study]
    digest = settings(study, study.strategy(cell.strategy), cell.seed)
    plain = {"settings": digest, "before": 0.2, "after": 0.5, "curve": [0.2, 0.5], "cpu_s": 1.0}
    return Result(cell.study, cell.strategy, cell.seed, **(plain | more))


def test_only_what_is_missing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [Cell("three calls", "identical", seed) for seed in range(4)]
    path = tmp_path / "found" / "results.jsonl"
    append(path, _result(cells[0]))
    append(path, _result(cells[1], settings="of another day"))
    with path.open("a") as file:
        file.write('{"study": "three calls", "strat')
    ran: list[Cell] = []
    monkeypatch.setattr(running, "ProcessPoolExecutor", lambda *_: _HerePool())
    monkeypatch.setattr(running, "run_cell", lambda cell: ran.append(cell) or _result(cell))
    running.run_missing(cells, path, processes=1)
    assert ran == cells[1:]
    assert len(running.current(cells, load(path))) == 4
    running.run_missing(cells, path, processes=1)
    assert len(ran) == 3


def test_a_cell_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    cells = [Cell("three calls", "identical", seed) for seed in range(3)]

    def fail_once(cell: Cell) -> Result:
        if cell.seed == 1:
            raise RuntimeError("out of luck")
        return _result(cell)

    monkeypatch.setattr(running, "ProcessPoolExecutor", lambda *_: _HerePool())
    monkeypatch.setattr(running, "run_cell", fail_once)
    running.run_missing(cells, tmp_path / "results.jsonl", processes=1)
    assert {one.seed for one in load(tmp_path / "results.jsonl")} == {0, 2}
    assert "out of luck" in capsys.readouterr().out


def test_cells_run_in_processes_of_their_own() -> None:
    cell = Cell("no such study", "identical", 0)
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawned, running.quiet) as pool, pytest.raises(KeyError, match="no such study"):
        pool.submit(running.run_cell, cell).result()


def test_the_newest_line_of_a_cell_counts(tmp_path: Path) -> None:
    path, cell = tmp_path / "results.jsonl", Cell("three calls", "identical", 0)
    for after in (0.5, 0.75):
        append(path, _result(cell, after=after))
    (only,) = newest(load(path)).values()
    assert only.gain == pytest.approx(0.55)
    assert only.area == pytest.approx(0.35)
    assert len([json.loads(line) for line in path.read_text().splitlines()]) == 2


@pytest.mark.parametrize(("planted", "code"), [(None, 0), ("never published", 1)])
def test_the_command_fails_on_a_control_that_improves(
    planted: str | None, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    results, docs = tmp_path / "results.jsonl", tmp_path / "learning.md"
    docs.write_text(f"{page.BEGIN}{page.END}")
    for cell in all_cells(5):
        strategy = STUDIES[cell.study].strategy(cell.strategy)
        gain = 0.5 if strategy.expected != "control" or strategy.name == planted else 0.0
        append(results, _result(cell, after=0.2 + gain))
    monkeypatch.setattr(command, "DOCS", tmp_path)
    monkeypatch.setattr(command.plot, "draw", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["learning", "--seeds", "5", "--processes", "1", "--results", str(results)])
    assert command.main() == code
    assert ("WRONG" in capsys.readouterr().out) == bool(code)
    assert "| never published |" in docs.read_text()


class _HerePool:
    """Runs what is submitted at once, in this process."""

    def __enter__(self) -> "_HerePool":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, work, cell):
        from concurrent.futures import Future

        future: Future = Future()
        try:
            future.set_result(work(cell))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, **_: object) -> None:
        pass
