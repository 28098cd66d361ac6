"""`python -m leyden_collector`: one collector process."""

import asyncio
import gc
import sys

import uvloop

from leyden_collector.assembler import Assembler
from leyden_collector.cache import SegmentCache
from leyden_collector.pace import Pace
from leyden_collector.reader import SegmentReader
from leyden_collector.receiving import receive
from leyden_collector.segments import Limits, SegmentWriter
from leyden_collector.settings import CollectorSettings
from leyden_ledger import Ledger
from leyden_runtime.logs import configure_logs
from leyden_runtime.settings import load_settings, secret
from leyden_runtime.shutdown import stop_event
from leyden_runtime.tokens import Tokens
from leyden_storage import ObjectStore, StoreError, open_store


async def serve(settings: CollectorSettings, store: ObjectStore, tokens: Tokens) -> None:
    """Receive spans and assemble trajectories until SIGTERM or SIGINT."""
    # What has been imported lives for ever; without this, each full collection would look through all of it.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    stop = stop_event()
    ledger = Ledger.connect(settings.redis_url)
    cache = SegmentCache(settings.cache_bytes)
    pace = Pace(settings.poll_ms / 1000, settings.sweep_s)
    writer = SegmentWriter(store, ledger.assembly, cache, Limits.of(settings), pace.touch)
    reader = SegmentReader(store, cache)
    assembler = Assembler(store, ledger, reader, pace, lease_s=settings.assembly_lease_s, width=settings.assemblers)
    assembling = asyncio.create_task(assembler.run(stop))
    try:
        await receive(writer, tokens, settings, stop)
    finally:
        stop.set()
        await writer.aclose()
        await assembling
        await ledger.aclose()


def main() -> None:
    """Run until told to stop. Exits with 2 if the settings are wrong."""
    configure_logs("collector")
    settings = load_settings(CollectorSettings)
    try:
        store = open_store(settings.store_url, settings.s3_access_key, secret(settings.s3_secret_key))
        tokens = Tokens(secret(settings.signing_key) or "")
    except (StoreError, ValueError) as error:
        print(f"settings: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    uvloop.run(serve(settings, store, tokens))


if __name__ == "__main__":
    main()
