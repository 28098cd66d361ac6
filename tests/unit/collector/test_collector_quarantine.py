"""Quarantine: kept apart with the reason, counted by kind, and bounded."""

import base64
import json

import pytest
from prometheus_client import REGISTRY

from leyden_collector.quarantine import Quarantine, encode
from leyden_collector.refusal import KINDS, RefusedSpan
from leyden_runtime.tokens import Scope
from support.collector import SwitchedStore, serve_receiver
from support.spans import agent_span, broken_span, call_span, pack_logprobs, request, transition

ONE = RefusedSpan("malformed", "no tokens", b"raw", 3)


def counted(name: str, kind: str) -> float:
    return REGISTRY.get_sample_value(f"leyden_collector_{name}_total", {"kind": kind}) or 0


def test_what_one_run_may_fill_in_a_minute_is_bounded() -> None:
    store, now = SwitchedStore(), [0.0]
    quarantine = Quarantine(store, 3 * len(encode(ONE)), clock=lambda: now[0])  # type: ignore[arg-type]
    before = counted("quarantined", "malformed"), counted("quarantine_dropped", "malformed")
    quarantine.write("run-a", "one", [ONE] * 2)
    quarantine.write("run-a", "two", [ONE] * 2)
    quarantine.write("run-a", "three", [ONE])
    quarantine.write("run-b", "one", [ONE])
    lines = {key: len(data.splitlines()) for key, data in store.objects.items()}
    assert lines == {
        "runs/run-a/quarantine/one.jsonl": 2,
        "runs/run-a/quarantine/two.jsonl": 1,
        "runs/run-b/quarantine/one.jsonl": 1,
    }
    after = counted("quarantined", "malformed"), counted("quarantine_dropped", "malformed")
    assert (after[0] - before[0], after[1] - before[1]) == (4, 2)
    now[0] = 61
    quarantine.write("run-a", "four", [ONE])
    assert "runs/run-a/quarantine/four.jsonl" in store.objects


def test_runs_that_have_been_quiet_are_forgotten() -> None:
    now = [0.0]
    quarantine = Quarantine(SwitchedStore(), 10**6, clock=lambda: now[0])  # type: ignore[arg-type]
    for number in range(3000):
        now[0] += 1
        quarantine.write(f"run-{number}", "one", [ONE])
    assert len(quarantine._windows) < 1100


@pytest.mark.parametrize("attempt", [1, 2])
async def test_a_fenced_call_is_told_counted_and_noted_where_it_is(attempt: int, signing_key: str) -> None:
    async with serve_receiver(signing_key) as served:
        served.notes.fenced = {("g-0.0", 1)}
        token = served.tokens.mint(Scope.SPANS, 60)
        body = request(call_span(transition(attempt=attempt)), call_span(transition(episode="g-0.1")))
        before = counted("quarantined", "fenced")
        status, answer, _ = await served.post(body.SerializeToString(), token)
        assert status == 200
        assert (b"live one" in answer) == (attempt == 1)
        assert counted("quarantined", "fenced") - before == (attempt == 1)
        lines = [data for key, data in served.store.objects.items() if "/quarantine/" in key]
        if attempt == 1:
            (segment,) = (key for key in served.store.objects if "/segments/" in key)
            (line,) = map(json.loads, lines)
            assert line["kind"] == "fenced"
            assert segment in line["reason"]
        else:
            assert lines == []


async def test_every_kind_is_kept_with_its_reason(signing_key: str) -> None:
    async with serve_receiver(signing_key, max_span_parts=24) as served:
        gateway = served.tokens.mint(Scope.SPANS, 60)
        agent = served.tokens.mint(Scope.ATTEMPT, 60, run="run-a", episode="g-0.0", attempt=1)
        wide = agent_span(leyden__run="run-a", **{f"k{n}": n for n in range(30)})
        spans = {
            "malformed": (gateway, call_span(transition(1, finish_reason="abort"))),
            "oversize": (gateway, wide),
            "mismatched": (gateway, broken_span(transition(1))),
            "nan": (gateway, call_span(transition(1, response_logprobs=pack_logprobs([float("nan")] * 8)))),
            "no_run": (gateway, agent_span()),
            "foreign": (agent, agent_span(leyden__run="run-b")),
            "forged": (agent, call_span(transition(1))),
        }
        assert set(spans) | {"fenced"} == set(KINDS)
        for kind, (token, span) in spans.items():
            served.store.objects.clear()
            status, _, _ = await served.post(request(span).SerializeToString(), token)
            ((key, data),) = served.store.objects.items()
            line = json.loads(data)
            assert (status, line["kind"]) == (200, kind)
            assert base64.b64decode(line["span"]) == span.SerializeToString()
            assert line["bytes"] == span.ByteSize()
            assert line["reason"]
            # A span that nobody's token or run vouches for is nobody's; nothing of it is in a run's folder.
            assert key.startswith("runs/run-a/quarantine/" if kind not in {"no_run", "oversize"} else "quarantine/")
