"""One version's way into service: manifest, files, hashes, load, proof."""

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from leyden_adapter_loader.cache import BadAdapter, Cache
from leyden_adapter_loader.names import Adapter
from leyden_adapter_loader.proof import Verdict, judge
from leyden_adapter_loader.questions import Unprovable, choose
from leyden_adapter_loader.replica import Replica, ReplicaRefused
from leyden_contracts import AdapterManifest
from leyden_storage import ObjectStore, StoreError
from leyden_storage.keys import manifest_key

T = TypeVar("T")


class Rejected(Exception):
    """The version must not be served."""

    def __init__(self, outcome: str, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome
        """`bad_adapter`, `store`, `disk`, `not_loaded` or `not_proved`: a metric's label."""
        self.reason = reason


@dataclass(frozen=True, slots=True)
class BringUp:
    """Brings versions into service on one replica."""

    store: ObjectStore
    cache: Cache
    replica: Replica
    tolerance: float
    """See `proof.judge`."""

    async def __call__(self, adapter: Adapter, loaded: bool, again: bool) -> Verdict:
        """Return the proof that the replica serves `adapter`. Raises Rejected, ReplicaDown.

        Args:
            adapter: what to serve.
            loaded: the replica lists its name already, as it does when only this loader was restarted. Whatever it
                has under that name must prove itself, or goes.
            again: an attempt has failed before: nothing of it is used.
        """
        try:
            manifest = await asyncio.to_thread(read_manifest, self.store, adapter)
            if loaded:
                try:
                    return await self._prove(adapter.name, manifest)
                except Rejected:
                    await self._ask("not_loaded", self.replica.unload(adapter.name))
            folder = await asyncio.to_thread(self.cache.fetch, self.store, manifest, again or loaded)
        except BadAdapter as error:
            raise Rejected("bad_adapter", str(error)) from error
        except StoreError as error:
            raise Rejected("store", f"the store did not give it: {error}") from error
        except OSError as error:
            raise Rejected("disk", f"its files could not be written: {error}") from error
        await self._load(adapter.name, folder)
        try:
            return await self._prove(adapter.name, manifest)
        except Rejected as rejected:
            await self._take_back(adapter.name, rejected)
            raise

    async def _load(self, name: str, folder: Path) -> None:
        try:
            await self.replica.load(name, folder)
        except ReplicaRefused as error:
            # It may be there already: an earlier load whose answer came too late. Then it has to prove itself as it is.
            if name not in await self._ask("not_loaded", self.replica.models()):
                raise Rejected("not_loaded", str(error)) from error

    async def _take_back(self, name: str, rejected: Rejected) -> None:
        try:
            await self.replica.unload(name)
        except ReplicaRefused as error:
            raise Rejected(rejected.outcome, f"{rejected.reason}; nor can it be unloaded: {error}") from error

    async def _prove(self, name: str, manifest: AdapterManifest) -> Verdict:
        try:
            questions = choose(manifest.probes)
            asked = (self.replica.next_logprob(name, one.prefix, one.token) for one in questions)
            served = await self._ask("not_proved", _all(asked))
            verdict = judge(questions, served, self.tolerance)
        except Unprovable as error:
            raise Rejected("not_proved", str(error)) from error
        if not verdict.passed:
            raise Rejected("not_proved", verdict.reason)
        return verdict

    async def _ask(self, outcome: str, request: Awaitable[T]) -> T:
        try:
            return await request
        except ReplicaRefused as error:
            raise Rejected(outcome, str(error)) from error


async def _all(asked: Iterable[Awaitable[T]]) -> list[T]:
    """Wait for all at once: the replica answers them in one batch. The first that fails ends the others."""
    tasks = [asyncio.ensure_future(one) for one in asked]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def read_manifest(store: ObjectStore, adapter: Adapter) -> AdapterManifest:
    """Return the version's manifest. Raises BadAdapter if it is broken or of another version; StoreError."""
    try:
        manifest = AdapterManifest.model_validate_json(
            store.get(manifest_key(adapter.run, adapter.role, adapter.version))
        )
    except ValidationError as error:
        raise BadAdapter(f"the manifest cannot be read: {error.errors()[0]['msg']}") from error
    if (manifest.run, manifest.role, manifest.version) != (adapter.run, adapter.role, adapter.version):
        raise BadAdapter(f"the manifest is of {manifest.run}, {manifest.role}, version {manifest.version}")
    return manifest
