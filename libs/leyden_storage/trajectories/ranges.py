"""An object as a file to read from: only the parts that are asked for are fetched."""

import io

from leyden_storage.base import ObjectStore


class ObjectFile(io.RawIOBase):
    """A stored object, read by ranges. Its methods raise StoreError."""

    def __init__(self, store: ObjectStore, key: str, size: int) -> None:
        self._store, self._key, self._size = store, key, size
        self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; see `io.IOBase.seek`."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        """Return the place."""
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fetch as many bytes as `buffer` takes, fewer at the end."""
        count = max(min(len(buffer), self._size - self._at), 0)
        if count:
            buffer[:count] = self._store.get_range(self._key, self._at, count)
        self._at += count
        return count
