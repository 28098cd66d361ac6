"""What every object store does."""

from collections.abc import Iterator
from typing import Protocol


class StoreError(Exception):
    """The object store did not do what was asked; it may work later."""


class ObjectNotFound(StoreError):
    """There is no object under this key."""


class ObjectStore(Protocol):
    """Immutable objects under string keys. Calls block: from asyncio, use `asyncio.to_thread`.

    Once `put` or `create` has returned, the object survives the loss of the process and of the machine's power.
    """

    def put(self, key: str, data: bytes) -> None:
        """Write `data` under `key`, atomically. Raises StoreError."""

    def create(self, key: str, data: bytes) -> bool:
        """Write `data` only if `key` is free; False if it was taken. Of many racing writers one wins."""

    def get(self, key: str) -> bytes:
        """Return the object. Raises ObjectNotFound, StoreError."""

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`. Raises ObjectNotFound, StoreError."""

    def size(self, key: str) -> int:
        """Return the object's size in bytes. Raises ObjectNotFound, StoreError."""

    def exists(self, key: str) -> bool:
        """Say whether there is an object under `key`."""

    def list(self, prefix: str) -> Iterator[str]:
        """Yield the keys that begin with `prefix`, in order."""

    def delete(self, key: str) -> None:
        """Remove the object, if there is one. Raises StoreError."""
