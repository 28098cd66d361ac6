"""The tree that an agent's spans make."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from leyden_traces.semantics import Fact

_HEIGHT = 100
"""How far up is looked: a forged chain of parents costs no more than this a span."""


class Tree:
    """An agent's spans by id. The same spans in any order, some of them twice, make the same tree."""

    def __init__(self, facts: Iterable[Fact]) -> None:
        self._facts: dict[str, Fact] = {}
        self._lines: dict[str, tuple[Fact, ...]] = {}
        for fact in facts:
            known = self._facts.get(fact.span)
            # Two different spans with one id: which came first must not matter.
            if known is None or (known != fact and known.order < fact.order):
                self._facts[fact.span] = fact

    def __iter__(self) -> Iterator[Fact]:
        """Yield the spans in the order of their ids."""
        return (self._facts[span] for span in sorted(self._facts))

    def get(self, span: str) -> Fact | None:
        """Return the span with this id, if it is here."""
        return self._facts.get(span)

    def above(self, fact: Fact) -> tuple[Fact, ...]:
        """Return the spans around `fact`, the nearest first."""
        if fact.span not in self._lines:
            self._lines[fact.span] = tuple(self._climb(fact))
        return self._lines[fact.span]

    def shared(self, one: Fact, other: Fact) -> int:
        """Return how many levels from `one` up the two have a span in common; as far as can be if they have none."""
        theirs = {fact.span for fact in (other, *self.above(other))}
        line = (one, *self.above(one))
        return next((level for level, fact in enumerate(line) if fact.span in theirs), _HEIGHT)

    def agent_of(self, fact: Fact) -> str:
        """Return the name of the agent at work in `fact`: of the nearest one around it, else what it says itself."""
        around = (each.agent for each in (fact, *self.above(fact)) if each.kind == "agent" and each.agent)
        return next(around, fact.agent)

    def _climb(self, fact: Fact) -> Iterator[Fact]:
        seen = {fact.span}
        found = self._facts.get(fact.parent)
        while found is not None and found.span not in seen and len(seen) < _HEIGHT:
            yield found
            seen.add(found.span)
            found = self._facts.get(found.parent)


def told_once(tree: Tree) -> list[Fact]:
    """Return the spans that are steps, in the order in which they ended.

    Where two instrumentations told of the same one, it is the outer, with all that is known. They did if one is of
    the same kind and name as the other right around it, with nothing but plain spans between.
    """
    steps = {fact.span: fact for fact in tree if fact.kind not in ("llm", "plain")}
    # The innermost first, so that what it says is handed up all the way.
    for fact in sorted(steps.values(), key=lambda fact: (-len(tree.above(fact)), fact.span)):
        outer = next((each for each in tree.above(fact) if each.kind != "plain"), None)
        if outer is not None and (outer.kind, outer.name) == (fact.kind, fact.name):
            steps[outer.span] = _joined(steps[outer.span], steps.pop(fact.span))
    return sorted(steps.values(), key=lambda fact: (fact.end_ns, fact.span))


def _joined(outer: Fact, inner: Fact) -> Fact:
    return replace(
        outer,
        tool_call_id=outer.tool_call_id or inner.tool_call_id,
        arguments=outer.arguments or inner.arguments,
        same_arguments=outer.same_arguments or inner.same_arguments,
        result=outer.result or inner.result,
        failed=outer.failed or inner.failed,
        error=outer.error or inner.error,
        odd_arguments=outer.odd_arguments or inner.odd_arguments,
    )
