"""Read an object on an S3 server by ranges, and go on where a connection broke off."""

from collections.abc import Iterator
from typing import Self
from uuid import UUID

from shared.files.blobs.base import BlobStoreUnavailable
from shared.files.blobs.measuring import measured
from shared.files.blobs.s3 import S3Bucket, Stream, reading_errors

CHUNK_BYTES = 256 * 1024
RESUME_ATTEMPTS = 3


class S3Reader:
    """One object, read by ranges."""

    file = None
    fixed_path = None

    def __init__(self, bucket: S3Bucket, version_id: UUID) -> None:
        self._bucket = bucket
        self._version_id = version_id
        self._body: Stream | None = None

    @measured("read")
    def chunks(self, start: int, stop: int) -> Iterator[bytes]:
        """Ask for the range now, so that a refusal comes before anything is promised to the client."""
        self.close()
        if start >= stop:
            return iter(())
        self._body = self._bucket.get(self._version_id, start, stop)
        return self._read(self._body, start, stop)

    def close(self) -> None:
        """Close the connection of a range not read to its end."""
        if self._body is not None:
            body, self._body = self._body, None
            body.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _read(self, body: Stream, start: int, stop: int) -> Iterator[bytes]:
        resumed = 0
        while start < stop:
            try:
                chunk = _read_some(body, stop - start)
            except BlobStoreUnavailable:
                resumed += 1
                if resumed > RESUME_ATTEMPTS:
                    raise
                body = self._body = self._bucket.get(self._version_id, start, stop)
                continue
            start += len(chunk)
            yield chunk


def _read_some(body: Stream, limit_bytes: int) -> bytes:
    with reading_errors():
        chunk = body.read(min(CHUNK_BYTES, limit_bytes))
    if not chunk:
        raise BlobStoreUnavailable
    return chunk
