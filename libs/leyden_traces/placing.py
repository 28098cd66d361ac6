"""Where steps and text calls stand: inside which step or call, and after which of the gateway's calls."""

from collections.abc import Mapping, Sequence

from leyden_contracts import Step, TextCall, Transition
from leyden_traces.calls import span_id
from leyden_traces.matching import Matches
from leyden_traces.semantics import Fact
from leyden_traces.tree import Tree, told_once


class Places:
    """The places of everything in one attempt."""

    def __init__(self, tree: Tree, calls: Sequence[Transition]) -> None:
        self._tree = tree
        self._matches = Matches(tree, calls)
        self.facts = told_once(tree)
        """The spans that are steps, in the order in which they ended."""
        self._asked = self._asked_tools()
        self._earliest: dict[str, int] = {}
        for made in self._matches.spans.values():
            self._earliest[made.process] = min(made.end_ns, self._earliest.get(made.process, made.end_ns))
        self._shown = {fact.span: fact.span for fact in (*self.facts, *self._matches.outside())}
        for call in calls:
            self._show_as_call(call)

    def reply_of(self, call: int) -> Fact | None:
        """Return the agent's own LLM span of the gateway's call `call`, if there is one."""
        found = self._matches.spans.get(call)
        return found if found is not None and found.kind == "llm" else None

    def after_call(self, fact: Fact) -> int:
        """Return the number of the last of the gateway's calls before `fact`, or 0."""
        return self._asked.get(fact.tool_call_id, 0) or self._by_clock(fact)

    def call(self, call: Transition) -> Transition:
        """Return the call with its agent and its place."""
        fact = self._matches.spans.get(call.number)
        agent = self._tree.agent_of(fact) if fact else ""
        parent = self._parent(fact, call) if fact else ""
        return call if (agent, parent) == (call.agent, call.parent) else _moved(call, agent, parent)

    def step(self, fact: Fact) -> Step:
        """Return the step that `fact` tells of."""
        return Step(
            kind=fact.kind if fact.kind in ("agent", "tool", "retrieval") else "other",  # type: ignore[arg-type]
            name=fact.name,
            span=fact.span,
            parent=self._around(fact),
            after_call=self.after_call(fact),
            failed=fact.failed,
            error=fact.error,
            input=fact.arguments,
            output=fact.result,
            duration_ms=(fact.end_ns - fact.start_ns) / 1e6,
        )

    def texts(self) -> tuple[TextCall, ...]:
        """Return the calls that did not pass the gateway, in the order in which they ended."""
        found = sorted(self._matches.outside(), key=lambda fact: (fact.end_ns, fact.span))
        return tuple(
            TextCall(
                span=fact.span,
                parent=self._around(fact),
                agent=self._tree.agent_of(fact),
                model=fact.model,
                messages=fact.messages or "[]",
                reply=fact.reply or "[]",
                finish_reason=fact.finish_reason,
                input_tokens=fact.input_tokens,
                output_tokens=fact.output_tokens,
            )
            for fact in found
        )

    def _asked_tools(self) -> Mapping[str, int]:
        """Return the calls that asked for tools, by the id of the tool call; of one asked for twice, the first."""
        found: dict[str, int] = {}
        for number, fact in sorted(self._matches.spans.items()):
            for asked in fact.asked_tools:
                found.setdefault(asked, number)
        return found

    def _by_clock(self, fact: Fact) -> int:
        """Return the last call that had ended when `fact` began, or when what is around it did: by one clock only.

        Of several, those of the nearest relatives count: what agents do at the same time is not mixed up.
        """
        for each in (fact, *self._tree.above(fact)):
            if each.start_ns < self._earliest.get(each.process, each.start_ns + 1):
                continue
            before = [
                (self._tree.shared(each, made), -made.end_ns, -number)
                for number, made in self._matches.spans.items()
                if made.process == each.process and made.end_ns <= each.start_ns
            ]
            return -min(before)[2]
        return 0

    def _show_as_call(self, call: Transition) -> None:
        fact = self._matches.spans.get(call.number)
        if fact is not None and fact.kind == "llm":
            name = span_id(call.run, call.episode, call.attempt, call.number).hex()
            for each in (fact, *self._tree.above(fact)):
                if each.kind == "llm" and self._matches.call_of(each.span) == call.number:
                    self._shown.setdefault(each.span, name)

    def _parent(self, fact: Fact, call: Transition) -> str:
        """Return the step around a call: its own LLM span does not count, a step that made the request itself does."""
        own = span_id(call.run, call.episode, call.attempt, call.number).hex()
        line = (self._shown.get(each.span, "") for each in (fact, *self._tree.above(fact)))
        return next((shown for shown in line if shown and shown != own), "")

    def _around(self, fact: Fact) -> str:
        line = (self._shown.get(each.span, "") for each in self._tree.above(fact))
        return next((shown for shown in line if shown and shown != self._shown.get(fact.span)), "")


def _moved(call: Transition, agent: str, parent: str) -> Transition:
    return call.model_copy(update={"agent": agent, "parent": parent})
