"""What every request and loop works with."""

import asyncio
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from leyden_ledger import Ledger
from leyden_ledger.archive import Archive
from leyden_runtime.settings import secret
from leyden_runtime.tokens import Tokens
from leyden_storage import ObjectStore, open_store
from leyden_task_api.adapters import Adapters
from leyden_task_api.feeder import Feeder
from leyden_task_api.owners import Owners
from leyden_task_api.places import Places
from leyden_task_api.promotion import Promoter
from leyden_task_api.settings import TaskApiSettings


@dataclass(frozen=True)
class Parts:
    """One process's connections and settings."""

    settings: TaskApiSettings
    ledger: Ledger
    store: ObjectStore
    adapters: Adapters
    archive: Archive
    feeder: Feeder
    owners: Owners
    promoter: Promoter
    tokens: Tokens
    uploads: Places
    exports: Places
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the process is asked to stop; ends streams that would never end."""


def open_parts(settings: TaskApiSettings, stop: asyncio.Event) -> Parts:
    """Connect. Raises StoreError, ValueError."""
    access_key, secret_key = settings.s3_access_key, secret(settings.s3_secret_key)
    store = open_store(settings.store_url, access_key, secret_key)
    tokens = Tokens(settings.signing_key.get_secret_value())
    ledger = Ledger.connect(settings.redis_url)
    feeder, owners = Feeder(ledger, store, settings.episodes_ahead), Owners(ledger)
    return Parts(
        settings=settings,
        ledger=ledger,
        store=store,
        adapters=Adapters(store),
        archive=Archive(ledger, store),
        feeder=feeder,
        owners=owners,
        promoter=Promoter(ledger, store),
        tokens=tokens,
        uploads=Places(settings.max_uploads_at_once),
        exports=Places(settings.max_exports_at_once, "exports are being made"),
        stop=stop,
    )


def _parts(request: Request) -> Parts:
    return request.app.state.parts


Here = Annotated[Parts, Depends(_parts)]
"""A route's parameter of this type receives the process's parts."""
