"""The demo's arithmetic problems: held-in for training, held-out for evaluation, longer ones apart.

A fifth of the operands of each length is reserved. A training problem (of the demonstrations that made the model,
and of reinforcement learning) has no reserved operand; a held-out problem has nothing else.
"""

from dataclasses import dataclass
from random import Random
from typing import Any, Literal

Length = Literal["short", "long", "longer"]
Sign = Literal["+", "-"]

SIGNS: tuple[Sign, ...] = ("+", "-")

OPERANDS: dict[Length, range] = {"short": range(10, 100), "long": range(100, 1000), "longer": range(1000, 10000)}
"""`longer` is for demonstrations only: variety makes the model copy numbers instead of knowing them."""


def _reserve(operands: range) -> frozenset[int]:
    # Drawn, not patterned: every digit must still be seen at every place in training.
    return frozenset(Random(2508).sample(operands, len(operands) // 5))


RESERVED: dict[Length, frozenset[int]] = {length: _reserve(operands) for length, operands in OPERANDS.items()}

_CHOICES: dict[tuple[Length, bool], list[int]] = {
    (length, held_out): [n for n in operands if (n in RESERVED[length]) == held_out]
    for length, operands in OPERANDS.items()
    for held_out in (True, False)
}


@dataclass(frozen=True)
class Problem:
    """One addition or subtraction."""

    left: int
    sign: Sign
    right: int

    @property
    def expression(self) -> str:
        """As the calculator takes it: `37+58`."""
        return f"{self.left}{self.sign}{self.right}"

    @property
    def answer(self) -> int:
        """The exact result."""
        return self.left + self.right if self.sign == "+" else self.left - self.right


def draw(rng: Random, length: Length, held_out: bool) -> Problem:
    """Return a random problem whose operands are all reserved (`held_out`) or all not."""
    operands = _CHOICES[length, held_out]
    return Problem(rng.choice(operands), rng.choice(SIGNS), rng.choice(operands))


def train_tasks(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return `count` different held-in tasks; the seed decides which."""
    return _tasks(count, "short", held_out=False, seed=seed)


def eval_tasks(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return `count` different tasks on operands that are never trained on."""
    return _tasks(count, "short", held_out=True, seed=seed)


def long_eval_tasks(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return `count` different held-out tasks of three digits, a length that reinforcement learning never sees."""
    return _tasks(count, "long", held_out=True, seed=seed)


def _tasks(count: int, length: Length, held_out: bool, seed: int) -> list[dict[str, Any]]:
    available = len(SIGNS) * len(_CHOICES[length, held_out]) ** 2
    if count > available:
        raise ValueError(f"there are only {available} different {length} problems, not {count}")
    rng = Random(f"{seed}-{length}-{held_out}")
    problems: dict[Problem, None] = {}
    while len(problems) < count:
        problems[draw(rng, length, held_out)] = None
    return [
        {
            "input": {"question": f"What is {problem.expression}?"},
            "expected": problem.answer,
            "tags": {"length": length},
        }
        for problem in problems
    ]
