"""A directory as object store: atomic create-if-absent by hard link, durable by fsync."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from leyden_storage.base import ObjectNotFound, StoreError


class LocalStore:
    """Objects as files under `root`. Several processes of one machine may share it."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._root.mkdir(parents=True, exist_ok=True)

    def put(self, key: str, data: bytes) -> None:
        """See `ObjectStore.put`."""
        temporary, path = self._write(key, data)
        try:
            temporary.replace(path)
            _sync_folder(path.parent)
        except OSError as error:
            raise StoreError(f"cannot write {key}: {error}") from error

    def create(self, key: str, data: bytes) -> bool:
        """See `ObjectStore.create`."""
        temporary, path = self._write(key, data)
        try:
            # link() fails if the name is taken, and shows the whole file or nothing: rename() cannot do the first.
            os.link(temporary, path)
            _sync_folder(path.parent)
        except FileExistsError:
            return False
        except OSError as error:
            raise StoreError(f"cannot create {key}: {error}") from error
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def get(self, key: str) -> bytes:
        """See `ObjectStore.get`."""
        try:
            return self._path(key).read_bytes()
        except (FileNotFoundError, IsADirectoryError) as error:
            raise ObjectNotFound(key) from error
        except OSError as error:
            raise StoreError(f"cannot read {key}: {error}") from error

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """See `ObjectStore.get_range`."""
        try:
            with self._path(key).open("rb") as file:
                file.seek(offset)
                return file.read(length)
        except FileNotFoundError as error:
            raise ObjectNotFound(key) from error
        except OSError as error:
            raise StoreError(f"cannot read {key}: {error}") from error

    def size(self, key: str) -> int:
        """See `ObjectStore.size`."""
        try:
            return self._path(key).stat().st_size
        except FileNotFoundError as error:
            raise ObjectNotFound(key) from error
        except OSError as error:
            raise StoreError(f"cannot look up {key}: {error}") from error

    def exists(self, key: str) -> bool:
        """See `ObjectStore.exists`."""
        return self._path(key).is_file()

    def list(self, prefix: str) -> Iterator[str]:
        """See `ObjectStore.list`."""
        folder = self._root / prefix.rpartition("/")[0]
        files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".tmp-"))
        keys = (path.relative_to(self._root).as_posix() for path in files)
        yield from sorted(key for key in keys if key.startswith(prefix))

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        path = self._path(key)
        try:
            path.unlink(missing_ok=True)
            if path.parent.is_dir():
                _sync_folder(path.parent)
        except OSError as error:
            raise StoreError(f"cannot delete {key}: {error}") from error

    def _path(self, key: str) -> Path:
        path = (self._root / key).resolve()
        if not path.is_relative_to(self._root) or path == self._root:
            raise StoreError(f"the key {key!r} leaves the store")
        return path

    def _write(self, key: str, data: bytes) -> tuple[Path, Path]:
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(f"cannot write {key}: {error}") from error
        return Path(name), path


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
