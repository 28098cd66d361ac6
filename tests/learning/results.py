"""Finished cells, one JSON object a line. What is there with the same settings is not run again."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Result:
    """What one cell measured."""

    study: str
    strategy: str
    seed: int
    settings: str
    """Digest of what the numbers follow from, the code left aside."""
    before: float
    """Mean score on held-out tasks by the base model."""
    after: float
    """The same by the last version."""
    curve: list[float]
    """Mean score of each step's own episodes, from version 0 on."""
    cpu_s: float

    @property
    def gain(self) -> float:
        """How much better the agent became on held-out tasks."""
        return self.after - self.before

    @property
    def area(self) -> float:
        """Area under the learning curve a step: the mean score while learning. Larger is faster."""
        return sum(self.curve) / len(self.curve)


def append(path: Path, result: Result) -> None:
    """Add one line; what a kill cut off before it stays a line of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cut = path.exists() and not path.read_bytes().endswith(b"\n")
    with path.open("a") as file:
        file.write("\n" * cut + json.dumps(asdict(result)) + "\n")


def load(path: Path) -> list[Result]:
    """Return all whole lines."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [Result(**found) for found in map(_read, lines) if found]


def _read(line: str) -> dict | None:
    try:
        return json.loads(line)
    except ValueError:
        return None


def newest(results: Iterable[Result]) -> dict[tuple[str, str, int], Result]:
    """Return the last result of each (study, strategy, seed)."""
    return {(one.study, one.strategy, one.seed): one for one in results}
