"""The contract of agents and graders: two plain functions, named as `module:function`.

    agent(input) -> output             input: any JSON value; output: any JSON value
    grader(task, output) -> reward     task: {"id", "input", "expected", "tags"}; reward: a number, or named numbers,
                                       with `"calls"` a list of numbers: intermediate rewards of the agent's calls

Either may be `async`. Nothing here knows of processes, HTTP or storage. The process that is forked for
each attempt holds this file: what it imports, every fork pays for.
"""

import importlib
import inspect
import json
import math
import sys
from collections.abc import Callable
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

Function = Callable[..., Any]
MOST_CALLS = 10_000
"""Intermediate rewards of one attempt."""
_CALLS = "calls"


class AgentNotFound(Exception):
    """No function stands at the given `module:function`."""


class OutputError(Exception):
    """The agent returned something that JSON cannot hold."""


class GraderError(Exception):
    """The grader raised, or returned something that is not a finite number."""


class Grade(NamedTuple):
    """What a grader's answer amounts to."""

    reward: float
    rewards: dict[str, float]
    """The named numbers, where the grader returned some."""
    calls: tuple[float, ...] = ()
    """Intermediate rewards: the n-th is call n's."""


def load_function(reference: str) -> Function:
    """Import the function that `reference` (`package.module:function`) names.

    Raises:
        AgentNotFound: it cannot be imported or called; the message says what to change.
    """
    module_name, _, name = reference.partition(":")
    if not module_name or not name:
        raise AgentNotFound(f"{reference!r} is not of the form `package.module:function`")
    module = _import(reference, module_name)
    function = getattr(module, name, None)
    if function is None:
        raise AgentNotFound(
            f"`{module_name}` has no `{name}`{_suggestion(module)}: correct the name after the colon in {reference!r}"
        )
    if not callable(function):
        raise AgentNotFound(f"`{name}` in `{module_name}` is a {type(function).__name__}: name a function")
    return function


def run_agent(agent: Function, value: Any) -> Any:
    """Call `agent` with one task's input and return its output as plain JSON data. What the agent raises passes.

    Raises:
        OutputError: the output is not JSON (NaN and infinity are not either).
    """
    output = _call(agent, value)
    try:
        return json.loads(json.dumps(output, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise OutputError(
            f"the agent returned a {type(output).__name__} that JSON cannot hold ({error}): "
            "return text, numbers, lists and dicts with text keys"
        ) from error


def grade(grader: Function, task: dict[str, Any], output: Any) -> Grade:
    """Call `grader` and read its answer.

    The reward of named numbers is their `"reward"` entry, or their sum where there is none.

    Raises:
        GraderError: it raised, or its answer is not made of finite numbers. This is never a reward of zero.
    """
    try:
        answer = _call(grader, task, output)
    except Exception as error:
        raise GraderError(f"the grader raised {type(error).__name__}: {error}") from error
    if not isinstance(answer, dict):
        return Grade(_number(answer, "the reward"), {})
    calls = _calls(answer[_CALLS]) if _CALLS in answer else ()
    rewards = {name: _number(value, f"the reward {name!r}") for name, value in answer.items() if name != _CALLS}
    if not rewards or not all(isinstance(name, str) for name in rewards):
        raise GraderError("the grader returned a dict that is not of named numbers: name each reward with text")
    return Grade(_number(rewards.get("reward", sum(rewards.values())), "the sum of the rewards"), rewards, calls)


def _call(function: Function, *arguments: Any) -> Any:
    result = function(*arguments)
    if not inspect.isawaitable(result):
        return result
    import asyncio

    return asyncio.run(_awaited(result))


async def _awaited(result: Any) -> Any:
    return await result


def _calls(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list | tuple):
        raise GraderError(
            f"{_CALLS!r} is a {type(value).__name__} ({value!r:.80}): return a list, a number for each of the agent's "
            "calls in order; a reward of this name is not possible"
        )
    if len(value) > MOST_CALLS:
        raise GraderError(f"{_CALLS!r} has {len(value):,} numbers: return {MOST_CALLS:,} at most")
    return tuple(_number(one, f"{_CALLS}[{place}]") for place, one in enumerate(value))


def _number(value: Any, what: str) -> float:
    if not isinstance(value, Real):
        raise GraderError(f"{what} is a {type(value).__name__} ({value!r:.80}), not a number: return an int or a float")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise GraderError(f"{what} is {number}, not a finite number: a grader must raise when it cannot tell")
    return number


def _import(reference: str, module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise AgentNotFound(
                f"there is no module `{error.name}` (looked for {reference!r} from {Path.cwd()}): start Leyden in the "
                "directory that holds it, add that directory to PYTHONPATH, or install the package"
            ) from error
        raise AgentNotFound(f"`{module_name}` needs the module `{error.name}`: install it beside Leyden") from error
    except (Exception, SystemExit) as error:
        raise AgentNotFound(
            f"importing `{module_name}` raised {type(error).__name__}: {error}. "
            f"`{Path(sys.executable).name} -c 'import {module_name}'` shows where"
        ) from error


def _suggestion(module: Any) -> str:
    own = [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]
    return f" (it has {', '.join(f'`{name}`' for name in sorted(own)[:5])})" if own else ""
