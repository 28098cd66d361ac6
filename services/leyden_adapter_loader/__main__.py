"""`python -m leyden_adapter_loader`: the loader of one replica."""

import asyncio
import sys

from leyden_adapter_loader.cache import Cache
from leyden_adapter_loader.loop import Loop
from leyden_adapter_loader.replica import Replica
from leyden_adapter_loader.settings import AdapterLoaderSettings
from leyden_ledger import Ledger
from leyden_runtime.logs import configure_logs
from leyden_runtime.settings import load_settings, secret
from leyden_runtime.shutdown import stop_event
from leyden_runtime.web import make_app, run_app
from leyden_storage import ObjectStore, StoreError, open_store


async def serve(settings: AdapterLoaderSettings, store: ObjectStore, cache: Cache) -> None:
    """Look after the replica until SIGTERM or SIGINT."""
    stop = stop_event()
    ledger = Ledger.connect(settings.redis_url)
    key = secret(settings.engine_api_key) or ""
    try:
        async with Replica(settings.replica_url, key, settings.replica_timeout_s, settings.load_timeout_s) as replica:
            loop = Loop(settings, ledger, store, replica, cache)
            looping = asyncio.create_task(loop.run(stop))
            try:
                await run_app(make_app(), settings.host, settings.port, stop)
            finally:
                stop.set()
                await looping
    finally:
        await ledger.aclose()


def main() -> None:
    """Run until told to stop. Exits with 2 if the settings are wrong."""
    configure_logs("adapter_loader")
    settings = load_settings(AdapterLoaderSettings)
    try:
        store = open_store(settings.store_url, settings.s3_access_key, secret(settings.s3_secret_key))
        # A folder of its own: a loader deletes what its replica does not use, whatever another one has loaded.
        cache = Cache(settings.cache_dir / settings.replica_id, settings.files_grace_s)
    except (StoreError, OSError) as error:
        print(f"settings: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    asyncio.run(serve(settings, store, cache))


if __name__ == "__main__":
    main()
