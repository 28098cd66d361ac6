"""Which spans are kept, and for whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from leyden_collector.admission import Share, admit
from leyden_collector.settings import CollectorSettings
from leyden_runtime.tokens import Claims, Scope
from leyden_traces import names
from support.spans import agent_span, broken_span, call_span, request, spans_of, transition

GATEWAY = Claims(Scope.SPANS, "default")
AGENT = Claims(Scope.ATTEMPT, "default", "run-a", "g-0.0", 1)


def take(message: ExportTraceServiceRequest, claims: Claims) -> dict[str | None, Share]:
    return {share.run: share for share in decide(message.SerializeToString(), claims)}


def decide(body: bytes, claims: Claims, **limits: int) -> list[Share]:
    settings = CollectorSettings.model_validate(limits)
    return admit(body, claims, settings.span_limits, most=settings.max_spans, shown=settings.quarantine_span_bytes)


def test_a_whole_request_of_one_run_is_stored_as_it_came() -> None:
    calls = [transition(1), transition(2)]
    message = request(*map(call_span, calls))
    body = message.SerializeToString()
    (share,) = decide(body, GATEWAY)
    assert share.otlp is body
    assert share.calls == calls
    assert (share.run, share.kept, share.refused) == ("run-a", 2, [])


def test_runs_of_one_request_are_separated() -> None:
    message = request(call_span(transition(1)), call_span(transition(2, run="run-b")), call_span(transition(3)))
    shares = take(message, GATEWAY)
    assert [call.number for call in shares["run-a"].calls] == [1, 3]
    assert len(spans_of(shares["run-a"].otlp)) == 2
    assert spans_of(shares["run-b"].otlp) == [call_span(transition(2, run="run-b"))]


def test_a_malformed_call_is_refused_and_its_neighbours_are_kept() -> None:
    message = request(call_span(transition(1)), broken_span(transition(2)), call_span(transition(3)))
    share = take(message, GATEWAY)["run-a"]
    assert [call.number for call in share.calls] == [1, 3]
    assert spans_of(share.otlp) == [call_span(transition(1)), call_span(transition(3))]
    (refused,) = share.refused
    assert refused.kind == "mismatched"
    assert "7 logprobs" in refused.detail
    assert refused.span == broken_span(transition(2)).SerializeToString()


@pytest.mark.parametrize(("trace", "span"), [(b"", b"s" * 8), (b"t" * 16, b"s" * 7)])
def test_a_span_without_proper_ids_is_malformed(trace: bytes, span: bytes) -> None:
    bad = call_span(transition())
    bad.trace_id, bad.span_id = trace, span
    (share,) = take(request(bad), GATEWAY).values()
    assert (share.kept, share.otlp, share.refused[0].kind) == (0, b"", "malformed")


def test_the_gateways_other_spans_need_a_run() -> None:
    shares = take(request(agent_span(), agent_span(leyden__run="run-b"), leyden__service="gateway"), GATEWAY)
    assert shares[None].refused[0].kind == "no_run"
    assert len(spans_of(shares["run-b"].otlp)) == 1


@pytest.mark.parametrize("run", ["../secrets", "Run", "", "a" * 49])
def test_a_run_that_is_no_id_never_becomes_a_folder(run: str) -> None:
    call = broken_span(transition())
    next(a for a in call.attributes if a.key == names.RUN).value.string_value = run
    shares = take(request(agent_span(leyden__run=run), call), GATEWAY)
    assert list(shares) == [None]
    assert len(shares[None].refused) == 2


def test_an_agents_own_spans_are_kept_and_stamped() -> None:
    share = take(request(agent_span(), service__name="agent"), AGENT)["run-a"]
    (span,) = spans_of(share.otlp)
    said = {one.key: one.value for one in span.attributes}
    assert said[names.RUN].string_value == "run-a"
    assert said[names.EPISODE].string_value == "g-0.0"
    assert said[names.ATTEMPT].int_value == 1
    assert share.calls == []


def test_an_agents_identity_may_come_from_its_environment() -> None:
    # OTEL_RESOURCE_ATTRIBUTES has only strings.
    message = request(agent_span(), leyden__run="run-a", leyden__episode="g-0.0", leyden__attempt="1")
    share = take(message, AGENT)["run-a"]
    assert spans_of(share.otlp) == [agent_span()]


@pytest.mark.parametrize("identity", [{"leyden__run": "run-b"}, {"leyden__episode": "g-0.1"}, {"leyden__attempt": 2}])
@pytest.mark.parametrize("where", ["span", "resource"])
def test_an_agent_cannot_write_for_another(identity: dict[str, str | int], where: str) -> None:
    if where == "span":
        message = request(agent_span(**identity), leyden__run="run-a")
    else:
        message = request(agent_span(leyden__run="run-a", leyden__episode="g-0.0"), **identity)
    (share,) = take(message, AGENT).values()
    assert (share.run, share.kept, share.refused[0].kind) == ("run-a", 0, "foreign")


def test_an_agent_cannot_forge_a_call() -> None:
    message = request(call_span(transition()), agent_span(), agent_span(leyden__call=1))
    share = take(message, AGENT)["run-a"]
    assert share.calls == []
    assert [one.kind for one in share.refused] == ["forged", "forged"]
    assert [span.name for span in spans_of(share.otlp)] == ["think"]


SPAN = st.tuples(st.sampled_from(["call", "broken", "agent"]), st.sampled_from(["run-a", "run-b"]))


@given(st.lists(st.lists(SPAN, max_size=4), max_size=4))
def test_each_sound_span_lands_once_with_its_run(groups: list[list[tuple[str, str]]]) -> None:
    message = ExportTraceServiceRequest()
    expected: dict[str, list[int]] = {"run-a": [], "run-b": []}
    number = 0
    for group in groups:
        spans = []
        for kind, run in group:
            number += 1
            made = {"call": call_span, "broken": broken_span}.get(kind)
            span = made(transition(number, run=run)) if made else agent_span(leyden__run=run)
            span.start_time_unix_nano = number
            spans.append(span)
            if kind != "broken":
                expected[run].append(number)
        message.MergeFrom(request(*spans))
    shares = take(message, GATEWAY)
    for run, numbers in expected.items():
        stored = spans_of(shares[run].otlp) if run in shares else []
        assert [span.start_time_unix_nano for span in stored] == numbers
    assert sum(len(share.refused) for share in shares.values()) == number - sum(map(len, expected.values()))
