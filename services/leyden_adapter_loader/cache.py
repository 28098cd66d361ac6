"""The adapters' files on this machine: checked against the manifest before they are there, and never changed after."""

import hashlib
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from leyden_adapter_loader.names import Adapter
from leyden_contracts import AdapterManifest
from leyden_storage import ObjectStore
from leyden_storage.keys import adapter_prefix

FILES = ("adapter_config.json", "adapter_model.safetensors")
"""What peft, vLLM and the embedded engine load. The rest of a checkpoint is the learner's."""
_FOLDER = re.compile(r"(?P<name>.+)-[0-9a-f]{12}(\.[0-9]+)?")
_PARTIAL = ".partial-"


class BadAdapter(Exception):
    """What is stored is not what the manifest says, or not a whole adapter."""


class Cache:
    """Folders `{adapter name}-{digest}` under `root`, each written once as a whole. Calls block."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)
        for left in root.glob(f"{_PARTIAL}*"):
            shutil.rmtree(left)

    def fetch(self, store: ObjectStore, manifest: AdapterManifest) -> Path:
        """Return a folder with the adapter's files, each with the sha256 of the manifest.

        Raises BadAdapter, StoreError, OSError.
        """
        wanted = wanted_files(manifest)
        name = Adapter(manifest.run, manifest.role, manifest.version).name
        folder = self._folder(name, wanted)
        if not folder.exists():
            prefix = adapter_prefix(manifest.run, manifest.role, manifest.version)
            self._write(folder, _checked({file: store.get(prefix + file) for file in wanted}, wanted))
        return folder

    def names(self) -> set[str]:
        """Return the names of the adapters that have files here."""
        matches = (_FOLDER.fullmatch(path.name) for path in self._root.iterdir())
        return {match["name"] for match in matches if match}

    def delete(self, name: str) -> None:
        """Delete the files of an adapter that no replica has loaded, nor may load again. Raises OSError."""
        for path in list(self._root.iterdir()):
            match = _FOLDER.fullmatch(path.name)
            if match and match["name"] == name:
                shutil.rmtree(path)

    def _folder(self, name: str, wanted: Mapping[str, str]) -> Path:
        """Return the adapter's folder, sound or still free.

        One that was damaged is left alone, as a replica may have it open or remember its path, and the next number
        is taken.
        """
        digest = hashlib.sha256("".join(f"{file} {wanted[file]}\n" for file in sorted(wanted)).encode()).hexdigest()[:12]
        number = 0
        while True:
            folder = self._root / (f"{name}-{digest}" + (f".{number}" if number else ""))
            if not folder.exists() or _is_sound(folder, wanted):
                return folder
            number += 1

    def _write(self, folder: Path, files: Mapping[str, bytes]) -> None:
        partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=self._root))
        try:
            # The replica may run as another user, who only reads.
            partial.chmod(0o755)
            for file, data in files.items():
                (partial / file).write_bytes(data)
            partial.rename(folder)
        except OSError:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def wanted_files(manifest: AdapterManifest) -> dict[str, str]:
    """Return the sha256 of each file that a replica needs. Raises BadAdapter where the manifest is no good."""
    odd = sorted(file for file in manifest.files if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", file) or ".." in file)
    if odd:
        raise BadAdapter(f"the manifest names {odd[0]!r}, which is no plain file name")
    missing = [file for file in FILES if file not in manifest.files]
    if missing:
        raise BadAdapter(f"the manifest has no {missing[0]}")
    return {file: manifest.files[file] for file in FILES}


def _checked(files: Mapping[str, bytes], wanted: Mapping[str, str]) -> Mapping[str, bytes]:
    for file, data in files.items():
        found = hashlib.sha256(data).hexdigest()
        if found != wanted[file]:
            raise BadAdapter(f"{file} in the store has sha256 {found[:12]}..., the manifest says {wanted[file][:12]}...")
    return files


def _is_sound(folder: Path, wanted: Mapping[str, str]) -> bool:
    try:
        _checked({file: (folder / file).read_bytes() for file in wanted}, wanted)
    except (OSError, BadAdapter):
        return False
    return True
