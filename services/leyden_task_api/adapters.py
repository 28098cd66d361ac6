"""Stored policy versions. They are immutable, so each manifest is read once."""

from collections.abc import Sequence
from functools import lru_cache

from leyden_contracts import AdapterManifest, RunSpec
from leyden_contracts.api import AdapterView
from leyden_storage import ObjectNotFound, ObjectStore
from leyden_storage.keys import adapter_prefix, adapter_versions, manifest_key

_MANIFEST = "manifest.json"


class Adapters:
    """Reads checkpoints of a run's trained roles. Calls block."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._view = lru_cache(maxsize=4096)(self._read)

    def list(self, spec: RunSpec, role: str | None = None) -> list[AdapterView]:
        """Return the stored versions, ascending, of `role` or of the lead role. Raises StoreError.

        A version is stored when the lead role's is, whose manifest comes last: what others have beyond is left out.
        """
        run = str(spec.id)
        versions = adapter_versions(self._store, run, spec.lead_role)
        return [self._view(run, role or spec.lead_role, version) for version in versions]

    def one(self, spec: RunSpec, version: int) -> AdapterView:
        """Return a stored version. Raises ObjectNotFound, StoreError."""
        return self._view(str(spec.id), spec.lead_role, version)

    def manifest(self, spec: RunSpec, version: int) -> AdapterManifest:
        """Return the whole manifest of a version. Raises ObjectNotFound, StoreError."""
        return self._manifest(str(spec.id), spec.lead_role, version)

    def parents(self, spec: RunSpec, version: int) -> Sequence[int]:
        """Return the versions that `version` comes from, nearest first, down to 0.

        Raises ObjectNotFound, StoreError.
        """
        found = []
        while version:
            version = self._view(str(spec.id), spec.lead_role, version).parent
            found.append(version)
        return found

    def file(self, spec: RunSpec, role: str, version: int, name: str) -> bytes:
        """Return one file of a checkpoint; only names that its manifest lists reach the store.

        Raises ObjectNotFound, StoreError.
        """
        run = str(spec.id)
        if name not in (_MANIFEST, *self._view(run, role, version).files):
            raise ObjectNotFound(f"version {version} has no file {name!r}")
        return self._store.get(adapter_prefix(run, role, version) + name)

    def _read(self, run: str, role: str, version: int) -> AdapterView:
        manifest = self._manifest(run, role, version)
        kept = {name: getattr(manifest, name) for name in AdapterView.model_fields}
        return AdapterView.model_validate({**kept, "groups": len(manifest.groups)})

    def _manifest(self, run: str, role: str, version: int) -> AdapterManifest:
        return AdapterManifest.model_validate_json(self._store.get(manifest_key(run, role, version)))
