"""One checkpoint, one commit: files and manifests of all roles first, and last the lead role's manifest, whose creation
makes the version exist."""

import hashlib
from collections.abc import Mapping, Sequence

from leyden_contracts import AdapterManifest
from leyden_runtime.failpoints import failpoint
from leyden_storage import ObjectStore
from leyden_storage.keys import adapter_prefix, adapter_versions, manifest_key


class CheckpointTaken(Exception):
    """Another learner has committed this version; go on from its checkpoint."""


class CheckpointDamaged(Exception):
    """A committed file is not what its manifest says."""


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the sha256 of each file, in hex."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


Files = Mapping[str, bytes]
"""File name -> content."""


def commit(store: ObjectStore, parts: Sequence[tuple[AdapterManifest, Files]]) -> None:
    """Write each role's files and manifest; the last part is the lead role's. Raises CheckpointTaken, StoreError.

    A crash before the last manifest leaves what nobody reads: the next attempt writes over it. A committed version is
    never touched.
    """
    *others, (lead, lead_files) = parts
    key = manifest_key(lead.run, lead.role, lead.version)
    if store.exists(key):
        raise CheckpointTaken(f"{key} exists")
    for manifest, files in others:
        _put(store, manifest, files)
        store.put(manifest_key(manifest.run, manifest.role, manifest.version), _text(manifest))
        failpoint("learner.followed")
    _put(store, lead, lead_files)
    failpoint("learner.written")
    if not store.create(key, _text(lead)):
        raise CheckpointTaken(f"{key} exists")


def _put(store: ObjectStore, manifest: AdapterManifest, files: Files) -> None:
    for name, data in files.items():
        store.put(adapter_prefix(manifest.run, manifest.role, manifest.version) + name, data)
        failpoint("learner.file")


def _text(manifest: AdapterManifest) -> bytes:
    return manifest.model_dump_json().encode()


def committed(store: ObjectStore, run: str, lead: str) -> list[AdapterManifest]:
    """Return the lead role's manifests of all committed versions, oldest first."""
    return [read_manifest(store, run, lead, version) for version in adapter_versions(store, run, lead)]


def read_manifest(store: ObjectStore, run: str, role: str, version: int) -> AdapterManifest:
    """Return one manifest. Raises ObjectNotFound, StoreError."""
    return AdapterManifest.model_validate_json(store.get(manifest_key(run, role, version)))


def read_files(store: ObjectStore, manifest: AdapterManifest) -> dict[str, bytes]:
    """Return the files of a committed version. Raises CheckpointDamaged, StoreError."""
    prefix = adapter_prefix(manifest.run, manifest.role, manifest.version)
    files = {name: store.get(prefix + name) for name in manifest.files}
    wrong = [name for name, digest in digests(files).items() if digest != manifest.files[name]]
    if wrong:
        raise CheckpointDamaged(f"{prefix}: {', '.join(wrong)} differ from the sha256 in the manifest")
    return files
