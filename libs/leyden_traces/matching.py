"""Which of an agent's LLM spans are the gateway's calls, and which are calls that did not pass it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from leyden_contracts import Transition
from leyden_traces.semantics import Fact
from leyden_traces.tree import Tree

_RESPONSES = "resp_"
"""What the gateway puts before a reply's id in OpenAI's Responses protocol."""


class Matches:
    """The LLM spans of an attempt, told apart."""

    def __init__(self, tree: Tree, calls: Sequence[Transition]) -> None:
        self.spans: dict[int, Fact] = {}
        """Call number -> the agent's span that made it: the LLM span nearest to the wire, or one around the request."""
        self._tree = tree
        self._numbers: dict[str, int] = {}
        self._models = [fact for fact in tree if fact.kind == "llm"]
        # An LLM span around another one tells of the same call: LangChain's around that of OpenAI's client.
        self._wrappers = {each.span for fact in self._models for each in tree.above(fact) if each.kind == "llm"}
        self._by_reply(calls)
        self._by_request([call for call in calls if call.number not in self.spans])
        self._by_usage([call for call in calls if call.number not in self.spans])

    def call_of(self, span: str) -> int:
        """Return the number of the call that this LLM span made, or is around; 0 if it is none of the gateway's."""
        return self._numbers.get(span, 0)

    def outside(self) -> list[Fact]:
        """Return the LLM spans of calls that did not pass the gateway, as far as their text is known."""
        found = [fact for fact in self._models if fact.span not in self._numbers and fact.span not in self._wrappers]
        # One that failed without an answer may be a request that the gateway refused.
        return [fact for fact in found if fact.reply or (fact.messages and not fact.failed)]

    def _by_reply(self, calls: Iterable[Transition]) -> None:
        replies: dict[str, list[Fact]] = defaultdict(list)
        for fact in self._models:
            replies[fact.response_id.removeprefix(_RESPONSES)].append(fact)
        for call in calls:
            found = replies.get(call.response_id, []) if call.response_id else []
            for fact in sorted(found, key=lambda fact: -len(self._tree.above(fact))):
                self._take(call, fact)

    def _by_request(self, calls: Iterable[Transition]) -> None:
        """Match by the span that the agent's request named, up through those of HTTP clients."""
        for call in calls:
            fact = self._tree.get(call.parent)
            if fact is None:
                continue
            line = (fact, *self._tree.above(fact))
            nearest = next((each for each in line if each.kind != "plain"), fact)
            self._take(call, nearest if nearest.kind == "llm" else fact)

    def _by_usage(self, calls: Iterable[Transition]) -> None:
        """Match those whose instrumentation says no reply's id: the same numbers of tokens, in order."""
        waiting: dict[tuple[int, int], list[Fact]] = defaultdict(list)
        for fact in sorted(self._models, key=lambda fact: (fact.process, fact.start_ns, fact.span)):
            if not (fact.response_id or self.call_of(fact.span) or fact.span in self._wrappers):
                waiting[fact.input_tokens, fact.output_tokens].append(fact)
        for call in calls:
            usage = len(call.prompt_token_ids) // 4, len(call.response_token_ids) // 4
            if all(usage) and waiting.get(usage):
                self._take(call, waiting[usage].pop(0))

    def _take(self, call: Transition, fact: Fact) -> None:
        self.spans.setdefault(call.number, fact)
        around = (fact, *self._tree.above(fact)) if fact.kind == "llm" else ()
        for each in around:
            if each.kind == "llm":
                self._numbers.setdefault(each.span, call.number)
