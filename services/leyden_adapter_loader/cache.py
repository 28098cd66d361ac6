"""The adapters' files on this machine: checked against the manifest before they are there, and never changed after."""

import hashlib
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from leyden_adapter_loader.names import Adapter
from leyden_contracts import AdapterManifest
from leyden_storage import ObjectStore
from leyden_storage.keys import adapter_prefix

FILES = ("adapter_config.json", "adapter_model.safetensors")
"""What peft, vLLM and the embedded engine load. The rest of a checkpoint is the learner's."""
_FOLDER = re.compile(r"(?P<name>.+)-[0-9a-f]{12}-[0-9a-f]{8}")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_PARTIAL = ".partial-"


class BadAdapter(Exception):
    """What is stored is not what the manifest says, or not a whole adapter."""


class Cache:
    """Folders `{adapter name}-{digest}-{random}` under `root`, each written once as a whole. Calls block."""

    def __init__(self, root: Path, files_grace_s: float) -> None:
        self._root = root
        self._grace_s = files_grace_s
        root.mkdir(parents=True, exist_ok=True)
        for left in root.glob(f"{_PARTIAL}*"):
            shutil.rmtree(left)

    def fetch(self, store: ObjectStore, manifest: AdapterManifest, fresh: bool) -> Path:
        """Return a folder with the adapter's files, each with the sha256 of the manifest.

        A `fresh` one has a path that was never used: a replica's prefix cache may remember the old path with what it
        wrongly loaded from there. Raises BadAdapter, StoreError, OSError.
        """
        wanted = wanted_files(manifest)
        name = Adapter(manifest.run, manifest.role, manifest.version).name
        start = f"{name}-{_digest(wanted)}-"
        if not fresh:
            for folder in self._root.glob(f"{start}*"):
                if _is_sound(folder, wanted):
                    return folder
        self._prune(name)
        prefix = adapter_prefix(manifest.run, manifest.role, manifest.version)
        files = {file: store.get(prefix + file) for file in wanted}
        _check(files, wanted)
        return self._write(self._root / (start + secrets.token_hex(4)), files)

    def names(self) -> set[str]:
        """Return the names of the adapters that have files here."""
        matches = (_FOLDER.fullmatch(path.name) for path in self._root.iterdir())
        return {match["name"] for match in matches if match and Adapter.parse(match["name"])}

    def delete(self, name: str) -> None:
        """Delete the files of an adapter that the replica has not loaded and no call uses. Raises OSError."""
        for folder in self._folders(name):
            shutil.rmtree(folder)

    def _folders(self, name: str) -> list[Path]:
        matches = [(path, _FOLDER.fullmatch(path.name)) for path in self._root.iterdir()]
        return [path for path, match in matches if match and match["name"] == name]

    def _prune(self, name: str) -> None:
        """Delete what earlier attempts left, so that a version that is tried for ever does not fill the disk."""
        for folder in self._folders(name):
            if time.time() - folder.stat().st_mtime > self._grace_s:
                shutil.rmtree(folder)

    def _write(self, folder: Path, files: Mapping[str, bytes]) -> Path:
        partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=self._root))
        try:
            # The replica may run as another user, who only reads.
            partial.chmod(0o755)
            for file, data in files.items():
                (partial / file).write_bytes(data)
            return partial.rename(folder)
        except OSError:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def wanted_files(manifest: AdapterManifest) -> dict[str, str]:
    """Return the sha256 of each file that a replica needs. Raises BadAdapter where the manifest is no good."""
    for file in manifest.files:
        if not _FILE.fullmatch(file) or ".." in file:
            raise BadAdapter(f"the manifest names {file!r}, which is no plain file name")
    missing = [file for file in FILES if file not in manifest.files]
    if missing:
        raise BadAdapter(f"the manifest has no {missing[0]}")
    return {file: manifest.files[file] for file in FILES}


def _digest(wanted: Mapping[str, str]) -> str:
    text = "".join(f"{file} {digest}\n" for file, digest in sorted(wanted.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _check(files: Mapping[str, bytes], wanted: Mapping[str, str]) -> None:
    for file, data in files.items():
        found = hashlib.sha256(data).hexdigest()
        if found != wanted[file]:
            raise BadAdapter(f"{file} has sha256 {found[:12]}..., and the manifest says {wanted[file][:12]}...")


def _is_sound(folder: Path, wanted: Mapping[str, str]) -> bool:
    try:
        _check({file: (folder / file).read_bytes() for file in wanted}, wanted)
    except (OSError, BadAdapter):
        return False
    return True
