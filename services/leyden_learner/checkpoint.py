"""One checkpoint, one commit: the files first, then the manifest, whose creation makes the version exist."""

import hashlib
from collections.abc import Mapping

from leyden_contracts import AdapterManifest
from leyden_storage import ObjectStore
from leyden_storage.keys import adapter_prefix, adapter_versions, manifest_key


class CheckpointTaken(Exception):
    """Another learner has committed this version; go on from its checkpoint."""


class CheckpointDamaged(Exception):
    """A committed file is not what its manifest says."""


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the sha256 of each file, in hex."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def commit(store: ObjectStore, manifest: AdapterManifest, files: Mapping[str, bytes]) -> None:
    """Write the files, then the manifest. Raises CheckpointTaken, StoreError.

    A crash before the manifest leaves files that nobody reads: the next attempt writes over them. A committed
    version is never touched.
    """
    run, role, version = manifest.run, manifest.role, manifest.version
    key = manifest_key(run, role, version)
    if store.exists(key):
        raise CheckpointTaken(f"{key} exists")
    for name, data in files.items():
        store.put(adapter_prefix(run, role, version) + name, data)
    if not store.create(key, manifest.model_dump_json().encode()):
        raise CheckpointTaken(f"{key} exists")


def committed(store: ObjectStore, run: str, role: str) -> list[AdapterManifest]:
    """Return the manifests of all committed versions, oldest first."""
    versions = adapter_versions(store, run, role)
    return [AdapterManifest.model_validate_json(store.get(manifest_key(run, role, version))) for version in versions]


def read_files(store: ObjectStore, manifest: AdapterManifest) -> dict[str, bytes]:
    """Return the files of a committed version. Raises CheckpointDamaged, StoreError."""
    prefix = adapter_prefix(manifest.run, manifest.role, manifest.version)
    files = {name: store.get(prefix + name) for name in manifest.files}
    wrong = [name for name, digest in digests(files).items() if digest != manifest.files[name]]
    if wrong:
        raise CheckpointDamaged(f"{prefix}: {', '.join(wrong)} differ from the sha256 in the manifest")
    return files
