"""Fetch a policy version's files, and check them against the hashes in its manifest."""

import hashlib
import re
from pathlib import Path

from leyden_client.client import LeydenClient
from leyden_client.errors import ClientError
from leyden_contracts import AdapterManifest

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")


def download_adapter(
    client: LeydenClient,
    run: str,
    version: int,
    folder: Path,
    *,
    role: str | None = None,
    training_state: bool = False,
) -> list[Path]:
    """Write a version's adapter (PEFT files and `manifest.json`) into `folder`; return the paths.

    Args:
        client: of the run's API.
        run: the run's id.
        version: from 1; version 0 is the base model and has no files.
        folder: made if absent.
        role: one of the run's trained roles; None is the first by name.
        training_state: fetch the optimizer's and random generators' states too.

    Raises:
        ClientError: a file is not what the manifest says.
        ApiError, ApiUnreachable: there is no such version, or the API is away.
    """
    text = client.adapter_file(run, version, "manifest.json", role)
    manifest = AdapterManifest.model_validate_json(text)
    names = [name for name in manifest.files if training_state or name.startswith("adapter_")]
    folder.mkdir(parents=True, exist_ok=True)
    paths = [_save(client, manifest, name, folder) for name in names]
    # Last, as in the object store: a folder with a manifest is whole.
    (folder / "manifest.json").write_bytes(text)
    return [*paths, folder / "manifest.json"]


def _save(client: LeydenClient, manifest: AdapterManifest, name: str, folder: Path) -> Path:
    if not _NAME.match(name):
        raise ClientError(f"the manifest names a file {name!r}, which is no plain file name")
    content = client.adapter_file(manifest.run, manifest.version, name, manifest.role)
    if hashlib.sha256(content).hexdigest() != manifest.files[name]:
        raise ClientError(f"{name} of version {manifest.version} does not have the hash its manifest states")
    (folder / name).write_bytes(content)
    return folder / name
