"""A collector's receiver on doubles whose failures a test can switch, and real collector processes."""

import asyncio
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
import grpc
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from redis.exceptions import ConnectionError

from leyden_collector.cache import SegmentCache
from leyden_collector.grpc_receiver import METHOD
from leyden_collector.receiving import receive
from leyden_collector.segments import Limits, SegmentWriter
from leyden_collector.settings import CollectorSettings
from leyden_ledger import AgentNote, SpanNote
from leyden_runtime.tokens import Tokens
from leyden_storage import StoreError
from support.servers import find_port, wait_for

PROTOBUF = {"Content-Type": "application/x-protobuf"}


class SwitchedStore:
    """Objects in memory; fails while `down`, hangs while `gate` is clear."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.down = False
        self.gate = threading.Event()
        self.gate.set()
        self.calls = 0

    def create(self, key: str, data: bytes) -> bool:
        self.calls += 1
        self.gate.wait(5)
        if self.down:
            raise StoreError("down")
        self.objects[key] = data
        return True


class SwitchedNotes:
    """What was noted; fails while `down`, and if a segment is noted before it is there. Says which are `fenced`."""

    def __init__(self, store: SwitchedStore) -> None:
        self._store = store
        self.noted: list[SpanNote] = []
        self.agents: list[AgentNote] = []
        self.fenced: set[tuple[str, int]] = set()
        self.down = False

    async def note_spans(self, run: str, notes: Sequence[SpanNote]) -> set[tuple[str, int]]:
        if self.down:
            raise ConnectionError("down")
        assert {note.segment for note in notes} <= set(self._store.objects), "noted before it was stored"
        self.noted += notes
        return {(note.episode, note.attempt) for note in notes} & self.fenced

    async def note_agents(self, run: str, notes: Sequence[AgentNote]) -> set[tuple[str, int]]:
        if self.down:
            raise ConnectionError("down")
        assert {note.segment for note in notes} <= set(self._store.objects), "noted before it was stored"
        assert not {note.segment for note in notes} & {note.segment for note in self.noted}, "after the calls"
        self.agents += notes
        return set()


class Answered(NamedTuple):
    """How one export over gRPC ended."""

    code: grpc.StatusCode
    detail: str
    body: bytes = b""
    status: Status | None = None
    """The details of an error, if there are any."""

    @property
    def refused(self) -> int:
        """How many spans were refused in part."""
        return ExportTraceServiceResponse.FromString(self.body).partial_success.rejected_spans


async def export_grpc(
    address: str,
    body: bytes,
    token: str | None,
    compression: grpc.Compression = grpc.Compression.NoCompression,
    timeout: float = 20,
) -> Answered:
    """Send one export over gRPC."""
    metadata = [("authorization", f"Bearer {token}")] if token else []
    async with grpc.aio.insecure_channel(address) as channel:
        send = channel.unary_unary(METHOD)
        try:
            answer = await send(body, metadata=metadata, compression=compression, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
            return Answered(error.code(), error.details() or "", b"", Status.FromString(details) if details else None)
    return Answered(grpc.StatusCode.OK, "", answer)


class Served:
    """A receiver that listens, and what is behind it."""

    def __init__(self, url: str, grpc: str, tokens: Tokens, store: SwitchedStore, notes: SwitchedNotes) -> None:
        self.url = url
        self.grpc = grpc
        self.tokens = tokens
        self.store = store
        self.notes = notes
        self.client = aiohttp.ClientSession()

    async def post(
        self, body: bytes, token: str, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, dict[str, str]]:
        """Return status, body and headers of the answer to one export."""
        sent = {"Authorization": f"Bearer {token}"} | PROTOBUF | (headers or {})
        async with self.client.post(f"{self.url}/v1/traces", data=body, headers=sent) as answer:
            return answer.status, await answer.read(), dict(answer.headers)


@asynccontextmanager
async def serve_receiver(signing_key: str, **settings: float) -> AsyncIterator[Served]:
    """Serve both receivers in this process, on switched doubles."""
    port, grpc_port, stop = find_port(), find_port(), asyncio.Event()
    store = SwitchedStore()
    notes = SwitchedNotes(store)
    given = {"port": port, "grpc_port": grpc_port, "flush_ms": 5, "store_timeout_s": 0.5}
    chosen = CollectorSettings.model_validate(given | settings)
    writer = SegmentWriter(store, notes, SegmentCache(2**20), Limits.of(chosen))  # type: ignore[arg-type]
    tokens = Tokens(signing_key)
    serving = asyncio.create_task(receive(writer, tokens, chosen, stop))
    served = Served(f"http://127.0.0.1:{port}", f"127.0.0.1:{grpc_port}", tokens, store, notes)
    try:
        while not serving.done():
            try:
                async with served.client.get(f"{served.url}/healthz"):
                    break
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.01)
        yield served
    finally:
        store.gate.set()
        await served.client.close()
        stop.set()
        await serving
        await writer.aclose()


def healthy(url: str) -> bool:
    """Say whether a service answers at `url`."""
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=1) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


@contextmanager
def collector_process(
    folder: Path, redis_url: str, store_folder: Path, signing_key: str, **settings: object
) -> Iterator[tuple[subprocess.Popen, str]]:
    """Run `python -m leyden_collector`; yields the process and its URL. It is killed at the end if it still runs.

    gRPC is off unless `grpc_port` is given: several collectors of one machine must not want the same port.
    """
    port = find_port()
    environment = os.environ | {
        "LEYDEN_REDIS_URL": redis_url,
        "LEYDEN_STORE_URL": f"file://{store_folder}",
        "LEYDEN_SIGNING_KEY": signing_key,
        "LEYDEN_COLLECTOR_PORT": str(port),
        "LEYDEN_COLLECTOR_GRPC_PORT": "0",
        **{f"LEYDEN_COLLECTOR_{name.upper()}": str(value) for name, value in settings.items()},
    }
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"collector-{port}.log").open("wb") as log:
        child = subprocess.Popen([sys.executable, "-m", "leyden_collector"], env=environment, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: child.poll() is not None or healthy(url), 60, "the collector")
        yield child, url
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
