"""A real collector process: real OpenTelemetry senders, kill -9, compression bombs, wrong settings."""

import asyncio
import gzip
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from leyden_contracts import AttemptResult, EpisodeState, RunSpec
from leyden_ledger import Ledger
from leyden_runtime.tokens import Scope, Tokens
from leyden_storage import LocalStore
from leyden_storage.trajectories import stored_trajectories
from support.collector import PROTOBUF, collector_process
from support.episodes import Planned, accept
from support.proxy import proxy_to
from support.servers import redis_server, wait_for
from support.spans import call_span, request, spans_of, transition

RUN, EPISODE = "run-a", "g-0.0"
KEY = "test-signing-key-of-more-than-32-characters"
TOKEN = Tokens(KEY).mint(Scope.SPANS, 600)


def own_token(run: str) -> str:
    """Return the token of an attempt of `run`."""
    return Tokens(KEY).mint(Scope.ATTEMPT, 600, run=run, episode=EPISODE, attempt=1)


def post(url: str, body: bytes, token: str, timeout: float = 10, **headers: str) -> int:
    """Send one export; return the status. Raises OSError if there is no answer."""
    sent = {"Authorization": f"Bearer {token}"} | PROTOBUF | headers
    wanted = urllib.request.Request(f"{url}/v1/traces", body, sent, method="POST")
    try:
        with urllib.request.urlopen(wanted, timeout=timeout) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


async def start_attempt(ledger: Ledger, calls: int) -> None:
    spec = {"id": RUN, "base_model": "m", "agent": "a:b", "grader": "a:c"}
    await ledger.runs.create(RunSpec.model_validate(spec))
    await accept(ledger, RUN, [Planned("g-0", size=1)])
    await ledger.episodes.release(RUN)
    assert await ledger.episodes.claim(RUN, EPISODE, "w", 60)
    for _ in range(calls):
        await ledger.calls.count(RUN, EPISODE, 1)


async def succeeded(ledger: Ledger, seconds: float) -> float:
    """Wait for the episode's success; return how long it took."""
    start = time.monotonic()
    async with asyncio.timeout(seconds):
        while (await ledger.episodes.get(RUN, EPISODE)).state is not EpisodeState.SUCCEEDED:
            await asyncio.sleep(0.005)
    return time.monotonic() - start


AGENT = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
tracer = provider.get_tracer("agent")
with tracer.start_as_current_span("plan"):
    with tracer.start_as_current_span("think"):
        pass
    with tracer.start_as_current_span("forge", attributes={"leyden.call": 1}):
        pass
provider.shutdown()
"""


class Shared(NamedTuple):
    """One collector for the tests that do it no harm."""

    url: str
    redis_url: str
    store: LocalStore


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder = tmp_path_factory.mktemp("collector")
    # A Redis of its own: on the session's, it would assemble what other tests' collectors have stored.
    with (
        redis_server(folder / "redis") as redis_url,
        # It sweeps once, at its start: after that only runs with recent spans are asked for closed attempts.
        collector_process(folder, redis_url, folder / "store", KEY, sweep_s=3600) as (_, url),
    ):
        yield Shared(url, redis_url, LocalStore(folder / "store"))


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_an_agents_own_sdk_sends_spans(compression: str, shared: Shared) -> None:
    """With the environment that a worker sets, and nothing else."""
    run = f"run-{compression}"
    environment = os.environ | {
        "OTEL_EXPORTER_OTLP_ENDPOINT": shared.url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_COMPRESSION": compression,
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{own_token(run)}",
        "OTEL_RESOURCE_ATTRIBUTES": f"leyden.run={run},leyden.episode={EPISODE},leyden.attempt=1",
    }
    subprocess.run([sys.executable, "-c", AGENT], env=environment, check=True, timeout=60)
    segments = [shared.store.get(key) for key in shared.store.list(f"runs/{run}/segments/")]
    assert sorted(span.name for span in spans_of(*segments)) == ["plan", "think"]
    (refused,) = shared.store.list(f"runs/{run}/quarantine/")
    assert b'"kind": "forged"' in shared.store.get(refused)


async def test_a_closed_attempt_is_assembled_before_the_next_sweep(shared: Shared) -> None:
    ledger = Ledger.connect(shared.redis_url)
    await start_attempt(ledger, 1)
    body = request(call_span(transition())).SerializeToString()
    assert await asyncio.to_thread(post, shared.url, body, TOKEN) == 200
    assert await ledger.episodes.close(RUN, EPISODE, 1, AttemptResult(outcome="graded", reward=1))
    await succeeded(ledger, 30)
    (trajectory,) = stored_trajectories(shared.store, RUN)
    assert trajectory.transitions == (transition(),)
    await ledger.aclose()


@pytest.mark.parametrize("lost", ["requests", "replies"])
async def test_kill_9_before_the_answer_then_the_senders_retry(
    lost: str, tmp_path: Path, redis_url: str, ledger: Ledger
) -> None:
    """The segment is stored; its note never reaches Redis (requests), or does, unanswered (replies)."""
    parts = urlsplit(redis_url)
    folder, body = tmp_path / "store", request(call_span(transition(1))).SerializeToString()
    store = LocalStore(folder)
    await start_attempt(ledger, 1)
    with proxy_to(parts.hostname or "", parts.port or 0) as proxy:
        cut_off = redis_url.replace(str(parts.port), str(proxy.port))
        with collector_process(tmp_path, cut_off, folder, KEY, poll_ms=1e6) as (child, url):
            other = request(call_span(transition(1, episode="other.0"))).SerializeToString()
            assert await asyncio.to_thread(post, url, other, TOKEN) == 200
            getattr(proxy, lost).clear()
            answer = asyncio.create_task(asyncio.to_thread(post, url, body, TOKEN))
            assert await asyncio.to_thread(proxy.held.wait, 5)
            stored = lambda: len(list(store.list(f"runs/{RUN}/segments/"))) == 2  # noqa: E731
            await asyncio.to_thread(wait_for, stored, 5, "the segment")
            await asyncio.sleep(0.1)
            assert not answer.done()
            child.send_signal(signal.SIGKILL)
            with pytest.raises(OSError):
                await answer
    with collector_process(tmp_path, redis_url, folder, KEY) as (_, url):
        assert await asyncio.to_thread(post, url, body, TOKEN) == 200
        assert await ledger.episodes.close(RUN, EPISODE, 1, AttemptResult(outcome="graded", reward=1))
        await succeeded(ledger, 5)
    assert len(list(store.list(f"runs/{RUN}/segments/"))) == 3
    (trajectory,) = stored_trajectories(store, RUN)
    assert trajectory.transitions == (transition(1),)


async def test_kill_9_before_assembly(tmp_path: Path, redis_url: str, ledger: Ledger) -> None:
    folder = tmp_path / "store"
    await start_attempt(ledger, 2)
    body = request(*(call_span(transition(number)) for number in (2, 1))).SerializeToString()
    with collector_process(tmp_path, redis_url, folder, KEY, poll_ms=1e6) as (child, url):
        assert await asyncio.to_thread(post, url, body, TOKEN) == 200
        child.send_signal(signal.SIGKILL)
    assert await ledger.episodes.close(RUN, EPISODE, 1, AttemptResult(outcome="graded", reward=1))
    with collector_process(tmp_path, redis_url, folder, KEY):
        await succeeded(ledger, 5)
    (trajectory,) = stored_trajectories(LocalStore(folder), RUN)
    assert trajectory.transitions == (transition(1), transition(2))


def memory_peak(pid: int) -> int:
    """Return the most memory the process has held, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) * 1024


def test_a_compression_bomb_is_cut_off(tmp_path: Path, redis_url: str) -> None:
    bomb = gzip.compress(bytes(256 * 2**20), 1)
    limits = {"max_body_bytes": 2**20}
    with collector_process(tmp_path, redis_url, tmp_path / "store", KEY, **limits) as (child, url):
        before = memory_peak(child.pid)
        # Announced and unannounced, so that neither relies on Content-Length.
        assert len(bomb) > 2**20
        assert post(url, bomb, TOKEN, **{"Content-Encoding": "gzip"}) == 413
        small = gzip.compress(bytes(128 * 2**20), 9)
        assert len(small) < 2**20
        assert post(url, small, TOKEN, **{"Content-Encoding": "gzip"}) == 413
        assert memory_peak(child.pid) - before < 16 * 2**20


def test_a_clean_stop_stores_and_answers_what_was_received(tmp_path: Path, redis_url: str) -> None:
    """SIGTERM while spans are being gathered."""
    body = request(call_span(transition())).SerializeToString()
    with collector_process(tmp_path, redis_url, tmp_path / "store", KEY, flush_ms=1000) as (child, url):
        sender = subprocess.Popen(
            [sys.executable, "-c", SENDER, url, TOKEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert sender.stdin
        assert sender.stdout
        sender.stdin.write(body)
        sender.stdin.close()
        wait_for(lambda: inflight_bytes(url) == len(body), 60, "the spans to be received")
        child.send_signal(signal.SIGTERM)
        assert sender.stdout.read() == b"200"
        sender.wait(60)
        assert child.wait(60) == 0


def inflight_bytes(url: str) -> float:
    """Return how many bytes of spans the collector holds."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("leyden_collector_inflight_bytes "))


SENDER = """
import sys, urllib.request
url, token = sys.argv[1:]
headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-protobuf"}
request = urllib.request.Request(f"{url}/v1/traces", sys.stdin.buffer.read(), headers)
print(urllib.request.urlopen(request, timeout=60).status, end="")
"""


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"LEYDEN_STORE_URL": "nowhere"}, "file:///absolute/folder"),
        ({"LEYDEN_SIGNING_KEY": "short"}, "32 characters"),
    ],
)
def test_wrong_settings_end_with_2(change: dict[str, str], says: str, tmp_path: Path) -> None:
    settings = {"LEYDEN_STORE_URL": f"file://{tmp_path}", "LEYDEN_SIGNING_KEY": KEY} | change
    done = subprocess.run(
        [sys.executable, "-m", "leyden_collector"], env=os.environ | settings, capture_output=True, timeout=30
    )
    assert done.returncode == 2
    assert says in done.stderr.decode()
