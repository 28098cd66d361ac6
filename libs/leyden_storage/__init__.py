"""The object store: the record of everything (DESIGN section 5). S3 or a local directory, with the same semantics."""

from leyden_storage.base import ObjectNotFound, ObjectStore, StoreError
from leyden_storage.local import LocalStore
from leyden_storage.open import open_store

__all__ = ["LocalStore", "ObjectNotFound", "ObjectStore", "StoreError", "open_store"]
