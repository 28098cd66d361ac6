"""Agents' own spans of a segment, by attempt, and how many of them one trajectory looks at."""

from collections import defaultdict
from collections.abc import Iterable

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from leyden_traces import Fact, is_call, names, process_of, read_span

MOST_SPANS = 4096
"""Of one attempt. What is beyond counts for nothing: spans of no known convention first, then by span id."""
MOST_CHARACTERS = 4 * 2**20
"""Of their text together."""
Agents = dict[tuple[str, int], list[Fact]]
"""Episode and attempt -> the agent's own spans."""
_IDENTITY = (names.EPISODE, names.ATTEMPT)


def read_agents(request: ExportTraceServiceRequest) -> Agents:
    """Return all spans of a segment that are no calls. Spans that say no attempt are nobody's."""
    found: Agents = defaultdict(list)
    for group in request.resource_spans:
        process, said = process_of(group.resource), _identity(group.resource.attributes)
        for span in (span for scope in group.scope_spans for span in scope.spans):
            if is_call(span):
                continue
            owner = said | _identity(span.attributes)
            attempt = owner.get(names.ATTEMPT, "")
            if names.EPISODE in owner and attempt.isascii() and attempt.isdecimal():
                found[owner[names.EPISODE], int(attempt[:10])].append(read_span(span, process))
    return dict(found)


def bounded(
    facts: Iterable[Fact], spans: int = MOST_SPANS, characters: int = MOST_CHARACTERS
) -> tuple[list[Fact], int]:
    """Return the spans that count, each once, and how many do not: the same ones in whatever order they come."""
    ordered = sorted(set(facts), key=lambda fact: (fact.kind == "plain", fact.order))
    kept: list[Fact] = []
    for fact in ordered[:spans]:
        characters -= fact.size
        if characters < 0:
            break
        kept.append(fact)
    return kept, len(ordered) - len(kept)


def _identity(attributes: Iterable[KeyValue]) -> dict[str, str]:
    return {attribute.key: _plain(attribute.value) for attribute in attributes if attribute.key in _IDENTITY}


def _plain(value: AnyValue) -> str:
    """Return an identity as text; numbers that came through an environment variable are text already."""
    return str(getattr(value, value.WhichOneof("value") or "string_value"))
