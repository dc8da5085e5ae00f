"""A bucket as a store: its marker, and that it keeps no versions. The blobs in it are `multipart`'s."""

from contextlib import suppress
from uuid import UUID

from shared.errors import DomainError
from shared.files.blobs.base import BlobMissing
from shared.files.blobs.marker import MARKER, parse_store_id
from shared.files.blobs.s3 import S3Bucket, reading_errors, request_errors

MAX_MARKER_BYTES = 1000


class MarkedBucket:
    """A bucket and prefix that are, or are to become, a store."""

    def __init__(self, bucket: S3Bucket) -> None:
        self._bucket = bucket
        self.address = f"s3://{bucket.name}/{bucket.prefix}"

    def refuse_versions(self) -> None:
        """Raise ValueError for a bucket that keeps versions, where deleted bytes stay.

        A server that knows no versions, or does not tell, is accepted.
        """
        status = None
        with suppress(DomainError), request_errors():
            status = self._bucket.client.get_bucket_versioning(Bucket=self._bucket.name).get("Status")
        if status == "Enabled":
            raise ValueError(
                f"the bucket {self._bucket.name} keeps versions of its objects, and so the bytes of deleted content:"
                " suspend its versioning, or use another"
            )

    def fingerprint(self) -> object:
        """Give the same for ever: a bucket does not come loose as a mount does, so its marker is read once."""
        return self.address

    def find_id(self) -> UUID | None:
        """Read the marker."""
        bucket = self._bucket
        try:
            with request_errors():
                body = bucket.client.get_object(Bucket=bucket.name, Key=self._key)["Body"]
            with reading_errors():
                written = body.read(MAX_MARKER_BYTES).decode("ascii", "replace")
        except BlobMissing:
            return None
        return parse_store_id(written)

    def write_id(self, store_id: UUID) -> None:
        """Write the marker; the caller holds the lock in the database and has found none."""
        bucket = self._bucket
        with request_errors():
            bucket.client.put_object(Bucket=bucket.name, Key=self._key, Body=f"{store_id}\n".encode())

    def is_empty(self) -> bool:
        """Look for an object in a directory below the prefix, as blobs are."""
        with request_errors():
            found = self._bucket.client.list_objects_v2(
                Bucket=self._bucket.name, Prefix=self._bucket.prefix, MaxKeys=10
            )
        names = (at["Key"].removeprefix(self._bucket.prefix) for at in found.get("Contents", ()))
        return not any("/" in name for name in names)

    def holds(self, version_id: UUID) -> bool:
        """Ask for the object; a blob that is not placed yet has none."""
        try:
            self._bucket.head(version_id)
        except BlobMissing:
            return False
        return True

    def prepare(self) -> None:
        """Nothing: a bucket has no directories."""

    @property
    def _key(self) -> str:
        return self._bucket.prefix + MARKER
