"""An S3 bucket as object store, through the `minio` client: MinIO, SeaweedFS, AWS and others."""

import io
from collections.abc import Iterator

import urllib3
from minio import Minio
from minio.error import MinioException, S3Error

from leyden_storage.base import ObjectNotFound, StoreError

_ABSENT = {"NoSuchKey", "NoSuchObject", "NoSuchBucket"}
_TAKEN = {"PreconditionFailed", "ConditionalRequestConflict"}
# What is smaller goes in one request; minio's own choice would cut an object of 8 MiB in two, four requests.
_CUT_BYTES = 16 * 2**20


class S3Store:
    """Objects in one bucket. Safe to share between threads."""

    def __init__(self, client: Minio, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    @classmethod
    def connect(cls, endpoint: str, bucket: str, access_key: str | None, secret_key: str | None) -> "S3Store":
        """Open `bucket` at `endpoint` (`http://host:port`), making it if it is absent. Raises StoreError."""
        secure, _, host = endpoint.partition("://")
        http = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=5, read=30),
            maxsize=32,
            retries=urllib3.Retry(total=3, backoff_factor=0.2),
        )
        client = Minio(host, access_key, secret_key, secure=secure == "https", http_client=http)
        try:
            if not client.bucket_exists(bucket):
                client.make_bucket(bucket)
        except S3Error as error:
            if error.code != "BucketAlreadyOwnedByYou":
                raise StoreError(f"cannot open the bucket {bucket!r} at {endpoint}: {error}") from error
        except (MinioException, urllib3.exceptions.HTTPError, ValueError) as error:
            raise StoreError(f"cannot open the bucket {bucket!r} at {endpoint}: {error}") from error
        return cls(client, bucket)

    def put(self, key: str, data: bytes) -> None:
        """See `ObjectStore.put`."""
        try:
            self._client.put_object(self._bucket, key, io.BytesIO(data), len(data), part_size=_CUT_BYTES)
        except (MinioException, urllib3.exceptions.HTTPError) as error:
            raise StoreError(f"cannot write {key}: {error}") from error

    def create(self, key: str, data: bytes) -> bool:
        """See `ObjectStore.create`."""
        try:
            # The public put_object has no way to pass If-None-Match, which makes the write conditional.
            self._client._put_object(self._bucket, key, data, {"If-None-Match": "*"})
        except S3Error as error:
            if error.code in _TAKEN:
                return self._mine(key, data)
            raise StoreError(f"cannot create {key}: {error}") from error
        except (MinioException, urllib3.exceptions.HTTPError) as error:
            raise StoreError(f"cannot create {key}: {error}") from error
        return True

    def get(self, key: str) -> bytes:
        """See `ObjectStore.get`."""
        return self._read(key, 0, 0)

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """See `ObjectStore.get_range`."""
        return self._read(key, offset, length)

    def size(self, key: str) -> int:
        """See `ObjectStore.size`."""
        try:
            return int(self._client.stat_object(self._bucket, key).size or 0)
        except S3Error as error:
            if error.code in _ABSENT:
                raise ObjectNotFound(key) from error
            raise StoreError(f"cannot look up {key}: {error}") from error
        except (MinioException, urllib3.exceptions.HTTPError) as error:
            raise StoreError(f"cannot look up {key}: {error}") from error

    def exists(self, key: str) -> bool:
        """See `ObjectStore.exists`."""
        try:
            self.size(key)
        except ObjectNotFound:
            return False
        return True

    def list(self, prefix: str) -> Iterator[str]:
        """See `ObjectStore.list`."""
        try:
            for item in self._client.list_objects(self._bucket, prefix, recursive=True):
                yield str(item.object_name)
        except (MinioException, urllib3.exceptions.HTTPError) as error:
            raise StoreError(f"cannot list {prefix}: {error}") from error

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        try:
            self._client.remove_object(self._bucket, key)
        except (MinioException, urllib3.exceptions.HTTPError) as error:
            raise StoreError(f"cannot delete {key}: {error}") from error

    def _read(self, key: str, offset: int, length: int) -> bytes:
        try:
            response = self._client.get_object(self._bucket, key, offset=offset, length=length)
            try:
                return response.read()
            finally:
                response.close()
                response.release_conn()
        except S3Error as error:
            if error.code in _ABSENT:
                raise ObjectNotFound(key) from error
            raise StoreError(f"cannot read {key}: {error}") from error
        except (MinioException, urllib3.exceptions.HTTPError) as error:
            raise StoreError(f"cannot read {key}: {error}") from error

    def _mine(self, key: str, data: bytes) -> bool:
        """Say whether the object that is there is ours: a first try whose reply was lost also ends as "taken".

        Two racing writers of the same bytes both see True; every caller's content names its writer or is the same
        fact, so that is harmless.
        """
        return self.get(key) == data
