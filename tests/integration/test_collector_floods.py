"""A real collector process whose memory stays bounded, and its tenants apart, whatever arrives."""

import asyncio
import gzip
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import aiohttp
import grpc
import pytest

from leyden_collector import wire
from leyden_runtime.failpoints import VARIABLE
from leyden_runtime.tokens import Scope, Tokens
from leyden_storage import LocalStore
from leyden_traces import names
from support.collector import PROTOBUF, collector_process, export_grpc
from support.servers import find_port, redis_server, wait_for
from support.spans import agent_span, call_span, request, spans_of, transition

KEY = "test-signing-key-of-more-than-32-characters"
TOKEN = Tokens(KEY).mint(Scope.SPANS, 600)
MB = 2**20


class Shared(NamedTuple):
    """One collector for the tests that do it no harm."""

    pid: int
    url: str
    grpc: str
    store: LocalStore


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder, port = tmp_path_factory.mktemp("collector"), find_port()
    with (
        redis_server(folder / "redis") as redis_url,
        collector_process(folder, redis_url, folder / "store", KEY, grpc_port=port) as (child, url),
    ):
        yield Shared(child.pid, url, f"127.0.0.1:{port}", LocalStore(folder / "store"))


def memory_peak(pid: int) -> int:
    """Return the most memory the process has held since it was last asked, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    peak = int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) * 1024
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak


def post(url: str, body: bytes, token: str = TOKEN, **headers: str) -> tuple[int, bytes]:
    sent = {"Authorization": f"Bearer {token}"} | PROTOBUF | headers
    wanted = urllib.request.Request(f"{url}/v1/traces", body, sent, method="POST")
    try:
        with urllib.request.urlopen(wanted, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


EMPTIES = {
    "resources": b"\x0a\x00",
    "scopes": wire.delimited(1, b"\x12\x00" * (8 * MB)),
    "spans": wire.delimited(1, wire.delimited(2, b"\x12\x00" * (8 * MB))),
    "resource pieces": wire.delimited(1, b"\x0a\x00" * (8 * MB)),
}


@pytest.mark.parametrize("kind", EMPTIES)
def test_two_bytes_that_would_be_fifty_in_memory(kind: str, shared: Shared) -> None:
    """32 kB on the way, 16 MB unpacked, and a gigabyte if it were parsed."""
    body = EMPTIES[kind] if len(EMPTIES[kind]) > 2 else EMPTIES[kind] * (8 * MB)
    before = memory_peak(shared.pid)
    assert post(shared.url, gzip.compress(body, 1), **{"Content-Encoding": "gzip"})[0] == 413
    assert memory_peak(shared.pid) - before < 80 * MB


@pytest.mark.parametrize("within", ["attribute", "list", "event"])
def test_a_span_of_nothings(within: str, shared: Shared) -> None:
    """Within one span too."""
    empty = {
        "attribute": b"\x4a\x00" * (2 * MB),
        "event": b"\x5a\x00" * (2 * MB),
        "list": wire.delimited(9, wire.delimited(2, wire.delimited(5, b"\x0a\x00" * (MB // 2)))) * 3,
    }[within]
    sound = call_span(transition()).SerializeToString()
    body = wire.join([wire.Group(b"", [wire.Scope(b"", [sound, *[empty] * 4])])])
    before = memory_peak(shared.pid)
    status, _ = post(shared.url, body)
    assert status == 200
    assert memory_peak(shared.pid) - before < 150 * MB


async def test_a_bomb_over_grpc(shared: Shared) -> None:
    before = memory_peak(shared.pid)
    answer = await export_grpc(shared.grpc, bytes(160 * MB), TOKEN, grpc.Compression.Gzip, timeout=60)
    assert answer.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert memory_peak(shared.pid) - before < 40 * MB
    sound = request(call_span(transition())).SerializeToString()
    assert (await export_grpc(shared.grpc, sound, TOKEN, grpc.Compression.Gzip)).code is grpc.StatusCode.OK


async def test_a_span_of_100_mb(shared: Shared) -> None:
    """With its length announced, piece by piece, and over gRPC."""
    body = request(agent_span("n" * (100 * MB), leyden__run="run-a")).SerializeToString()

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), MB):
            yield body[start : start + MB]

    before = memory_peak(shared.pid)
    headers = {"Authorization": f"Bearer {TOKEN}"} | PROTOBUF
    async with aiohttp.ClientSession() as client:
        for data in (body, pieces()):
            try:
                async with client.post(f"{shared.url}/v1/traces", data=data, headers=headers) as answer:
                    assert answer.status == 413
            except aiohttp.ClientConnectionError:
                pass  # It hung up in the middle, as it may: the answer was on its way.
    assert memory_peak(shared.pid) - before < 80 * MB
    before = memory_peak(shared.pid)
    answer = await export_grpc(shared.grpc, body, TOKEN, timeout=60)
    assert answer.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert memory_peak(shared.pid) - before < 40 * MB
    assert post(shared.url, request(call_span(transition())).SerializeToString())[0] == 200


async def test_two_tenants_spans_interleaved(shared: Shared) -> None:
    """In one trace, at one time, over both protocols: each lands with its token's run."""
    mint = Tokens(KEY).mint
    runs = {"run-red": "tenant-r", "run-blue": "tenant-b"}
    tokens = {
        run: mint(Scope.ATTEMPT, 60, tenant=tenant, run=run, episode="g-0.0", attempt=1) for run, tenant in runs.items()
    }

    async def send(number: int) -> None:
        run = ("run-red", "run-blue")[number % 2]
        other = ("run-blue", "run-red")[number % 2]
        body = request(agent_span(f"{run} {number}"), agent_span("lies", leyden__run=other)).SerializeToString()
        if number % 3:
            status, _ = await asyncio.to_thread(post, shared.url, body, tokens[run])
            assert status == 200
        else:
            answer = await export_grpc(shared.grpc, body, tokens[run])
            assert (answer.code, answer.refused) == (grpc.StatusCode.OK, 1)

    await asyncio.gather(*map(send, range(40)))
    for run in runs:
        spans = spans_of(*(shared.store.get(key) for key in shared.store.list(f"runs/{run}/segments/")))
        assert sorted(span.name for span in spans) == sorted(
            f"{run} {n}" for n in range(40) if (n % 2 == 0) == (run == "run-red")
        )
        said = {one.value.string_value for span in spans for one in span.attributes if one.key == names.RUN}
        assert said == {run}


async def test_a_clean_stop_answers_what_came_over_grpc(
    tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM when spans are in the store, and not yet in the ledger."""
    monkeypatch.setenv(VARIABLE, "collector.stored=sleep:1")
    port = find_port()
    body = request(call_span(transition())).SerializeToString()
    with collector_process(tmp_path, redis_url, tmp_path / "store", KEY, grpc_port=port) as (child, _):
        (log,) = tmp_path.glob("collector-*.log")
        answer = asyncio.create_task(export_grpc(f"127.0.0.1:{port}", body, TOKEN, timeout=60))
        await asyncio.to_thread(wait_for, lambda: "collector.stored: sleep" in log.read_text(), 30, "the segment")
        child.send_signal(signal.SIGTERM)
        assert (await answer).code is grpc.StatusCode.OK
        assert await asyncio.to_thread(child.wait, 30) == 0
    assert len(list(LocalStore(tmp_path / "store").list("runs/run-a/segments/"))) == 1


def test_two_collectors_never_share_a_port(tmp_path: Path, shared: Shared, redis_url: str) -> None:
    port = int(shared.grpc.rpartition(":")[2])
    with collector_process(tmp_path, redis_url, tmp_path / "store", KEY, grpc_port=port) as (child, _):
        assert child.wait(20) not in (0, None)
    assert "cannot listen" in next(tmp_path.glob("collector-*.log")).read_text()
