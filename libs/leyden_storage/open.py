"""From a URL to an object store."""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from leyden_storage.base import ObjectStore, StoreError
from leyden_storage.local import LocalStore


def open_store(url: str, access_key: str | None = None, secret_key: str | None = None) -> ObjectStore:
    """Open `file:///absolute/folder` or `s3://bucket?endpoint=http://host:port`. Raises StoreError."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path.startswith("/") and not parts.netloc:
        return LocalStore(Path(parts.path))
    endpoint = parse_qs(parts.query).get("endpoint", [""])[0]
    if parts.scheme == "s3" and parts.netloc and endpoint.startswith(("http://", "https://")):
        from leyden_storage.s3 import S3Store

        return S3Store.connect(endpoint, parts.netloc, access_key, secret_key)
    raise StoreError(
        f"{url!r} is no object store: use file:///absolute/folder or s3://bucket?endpoint=http://host:port"
    )
