"""Intermediate rewards: the grader's, and those that rules make from what the agent did (arXiv 2508.03680, 3.2.3).

A rule is a function from the evidence to (call, how often or how much); its weight is the run's.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from leyden_contracts import Signal, SignalRules, Step, Transition
from leyden_traces.semantics import Fact

GRADER = "grader"
"""Name of the grader's own intermediate rewards."""
_MOST = sys.float_info.max


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that was used: the step, and what only the span says."""

    step: Step
    fact: Fact


@dataclass(frozen=True, slots=True)
class Evidence:
    """What rules judge by."""

    calls: Sequence[Transition]
    tools: Sequence[Tool]
    replies: Mapping[int, Fact]
    """Call number -> the agent's own span of it, where there is one."""


Found = Iterator[tuple[int, float]]


def tool_error(evidence: Evidence) -> Found:
    """Each tool that failed."""
    return ((tool.step.after_call, 1.0) for tool in evidence.tools if tool.step.failed)


def tool_success(evidence: Evidence) -> Found:
    """Each tool that did not fail."""
    return ((tool.step.after_call, 1.0) for tool in evidence.tools if not tool.step.failed)


def invalid_arguments(evidence: Evidence) -> Found:
    """A call that asked for a tool with arguments that are no JSON object, or that the tool refused: once a call."""
    odd = {number for number, fact in evidence.replies.items() if fact.odd_arguments}
    odd |= {tool.step.after_call for tool in evidence.tools if tool.fact.odd_arguments}
    return ((number, 1.0) for number in sorted(odd))


def repeated_call(evidence: Evidence) -> Found:
    """Each use of a tool that was used before with the same arguments, where they are known."""
    seen: set[tuple[str, str]] = set()
    known = (tool for tool in evidence.tools if tool.fact.same_arguments)
    for tool in sorted(known, key=lambda tool: (tool.step.after_call, tool.fact.start_ns, tool.step.span)):
        use = (tool.step.name, tool.fact.same_arguments)
        if use in seen:
            yield tool.step.after_call, 1.0
        seen.add(use)


def format_violation(evidence: Evidence) -> Found:
    """Each call whose reply was cut by its length limit."""
    return ((call.number, 1.0) for call in evidence.calls if call.finish_reason == "length")


def latency_per_s(evidence: Evidence) -> Found:
    """The seconds that each call took, by the gateway's clock."""
    timed = (call for call in evidence.calls if call.end_ns > call.start_ns > 0)
    return ((call.number, (call.end_ns - call.start_ns) / 1e9) for call in timed)


def cost_per_1k_tokens(evidence: Evidence) -> Found:
    """The thousands of tokens of each call; those of an outside provider are not known."""
    sizes = ((call.number, len(call.prompt_token_ids) + len(call.response_token_ids)) for call in evidence.calls)
    return ((number, size / 4 / 1000) for number, size in sizes if size)


RULES: dict[str, Callable[[Evidence], Found]] = {
    rule.__name__: rule
    for rule in (
        tool_error,
        tool_success,
        invalid_arguments,
        repeated_call,
        format_violation,
        latency_per_s,
        cost_per_1k_tokens,
    )
}
"""By their names in `SignalRules`."""


def make_signals(evidence: Evidence, rules: SignalRules, graded: Sequence[float] = ()) -> tuple[Signal, ...]:
    """Return the intermediate rewards by call and name, one for each call and name.

    Args:
        evidence: of the attempt.
        rules: the run's.
        graded: the grader's, for call 1 on; those beyond the last call are ignored.
    """
    sums: dict[tuple[int, str], float] = defaultdict(float)
    for name, weight in rules.model_dump(exclude_none=True).items():
        for number, amount in RULES[name](evidence):
            sums[number, name] += weight * amount
    for number, value in enumerate(graded, start=1):
        sums[number, GRADER] = value
    return tuple(_signals(sums, {call.number for call in evidence.calls}))


def _signals(sums: Mapping[tuple[int, str], float], calls: Iterable[int]) -> Iterator[Signal]:
    known = set(calls)
    for (number, name), value in sorted(sums.items()):
        # A tool that was used before the first call says nothing about any.
        if number in known:
            yield Signal(call=number, name=name, value=max(-_MOST, min(_MOST, value)))
