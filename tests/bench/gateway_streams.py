"""Slow streams through one gateway, all at once: how many live at the same time, end whole, and what each costs."""

import asyncio
import json
import re
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from gateway_calls import Side, gateway, script, show
from gateway_load import streams
from ledger_parts import HERE, cpu_seconds

from leyden_runtime.open_files import allow_open_files

TOKENS, SLOW_S = 20, 1.25
"""Of each stream: its tokens, and the pause after each event."""
_IN_FLIGHT = re.compile(rb"^leyden_gateway_calls_in_flight (\S+)$", re.MULTILINE)
_LOOK_S = 0.5
_SPANS_S = 60


@dataclass
class Peaks:
    """The most that was seen of a gateway."""

    in_flight: int = 0
    rss_bytes: int = 0

    async def watch(self, side: Side) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.to_thread(self._look, side)
            await asyncio.sleep(_LOOK_S)

    def _look(self, side: Side) -> None:
        found = _IN_FLIGHT.search(_get(f"{side.target.url}/metrics"))
        self.in_flight = max(self.in_flight, int(float(found[1])) if found else 0)
        self.rss_bytes = max(self.rss_bytes, side.process.memory_info().rss)


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read()


def _recorded(sink: str) -> int:
    return int(json.loads(_get(f"{sink}/healthz"))["calls"])


def _all_recorded(sink: str, calls: int) -> int:
    """Wait until the sink has `calls`, or for a minute; return how many it has."""
    end = time.monotonic() + _SPANS_S
    while (seen := _recorded(sink)) < calls and time.monotonic() < end:
        time.sleep(0.1)
    return seen


def report(count: int) -> None:
    """Measure and print."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        _, replica = stack.enter_context(script(HERE / "gateway_upstream.py", folder))
        side, sink = stack.enter_context(gateway(folder, replica))
        # After the gateway has begun, which must see to its own limit.
        allow_open_files(2 * count + 1000)
        peaks = Peaks()
        warm = asyncio.run(streams(side.target, 20, 0.01, TOKENS, lambda: peaks.watch(side)))
        before = _all_recorded(sink, warm)
        peaks, rss, cpu = Peaks(), side.process.memory_info().rss, cpu_seconds([side.process])
        whole = asyncio.run(streams(side.target, count, SLOW_S, TOKENS, lambda: peaks.watch(side)))
        recorded = _all_recorded(sink, before + count) - before
        cpu = cpu_seconds([side.process]) - cpu
        show("streams_in_flight", peaks.in_flight, "streams at the same time", count)
        show("streams_ended_whole", whole, "streams", count)
        show("streams_recorded", recorded, "calls at the collector", count)
        show("streams_rss_mb", peaks.rss_bytes / 2**20, "MiB, peak of the gateway")
        show("streams_rss_kb_each", (peaks.rss_bytes - rss) / count / 1024, "KiB a stream")
        show("streams_cpu_ms_each", cpu / count * 1000, f"ms a stream of {TOKENS} tokens")
