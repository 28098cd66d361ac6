"""What the tiny model is taught before reinforcement learning: one good habit among several bad ones.

The mixture sets where training starts: the model knows how to call the calculator and how to read its result, and
does so about as often as the good habit was shown.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from leyden_agents.calculator.tasks import Length, Problem, draw

T = TypeVar("T")
Messages = list[dict[str, Any]]

LENGTHS: dict[Length, float] = {"short": 0.45, "long": 0.35, "longer": 0.2}
"""Length of the operands -> its share."""


def demonstration(rng: Random, clean: bool = False) -> Messages:
    """Return one conversation on a held-in problem, with the good habit always (`clean`) or by its weight."""
    length = _pick(rng, LENGTHS)
    problem = draw(rng, length, held_out=False)
    habit = _good if clean else _pick(rng, HABITS)
    return [{"role": "user", "content": f"What is {problem.expression}?"}, *habit(rng, problem, length)]


def _pick(rng: Random, shares: dict[T, float]) -> T:
    return rng.choices(list(shares), weights=list(shares.values()))[0]


def _good(_rng: Random, problem: Problem, _length: Length) -> Messages:
    return _call(problem.expression, str(problem.answer), _answer(problem.answer))


def _guess(rng: Random, problem: Problem, length: Length) -> Messages:
    other = draw(rng, length, held_out=False)
    return [_says(_answer(replace(problem, left=other.left, right=other.right).answer))]


def _broken_call(_rng: Random, _problem: Problem, _length: Length) -> Messages:
    return [_says('<tool_call>\n{"name": "calculator"}\n</tool_call>')]


def _unsure(_rng: Random, _problem: Problem, _length: Length) -> Messages:
    return [_says("I am not sure.")]


HABITS: dict[Callable[[Random, Problem, Length], Messages], float] = {
    _good: 0.40,
    _guess: 0.48,
    _broken_call: 0.04,
    _unsure: 0.08,
}
"""Habit -> its share of the mixed demonstrations."""


def _answer(value: int) -> str:
    return f"The answer is {value}."


def _says(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def _call(expression: str, result: str, conclusion: str) -> Messages:
    function = {"name": "calculator", "arguments": {"expression": expression}}
    call = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}
    return [call, {"role": "tool", "content": result}, _says(conclusion)]
