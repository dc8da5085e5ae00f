"""The blob store on an S3 server: one object per blob, at <prefix>/<last two hex digits>/<version id>.

Every blob, of any size, is a multipart upload: the web process creates it, records its id and sends the parts; only a
worker completes it.

The content's CRC-32 is computed on arrival. The server checks each part's; the HEAD after the completion returns that
of the whole, if the server keeps one. Memory is one part per upload.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Self
from uuid import UUID

from shared.errors import DomainError
from shared.files.blobs.base import (
    UNKNOWN_UPLOAD,
    AtMost,
    Blob,
    BlobDamaged,
    BlobStoreUnavailable,
    Disk,
    Size,
    Stored,
    UnlockedUpload,
    for_each,
    largest,
)
from shared.files.blobs.marker import Guard, Identity
from shared.files.blobs.measuring import measured
from shared.files.blobs.s3 import MarkedBucket, Part, S3Bucket, Stream, encode_crc32, reading_errors

SMALLEST_PART_BYTES = 8 << 20
MAX_PARTS = 10_000
DELETIONS_PER_REQUEST = 1_000
ABORT_ATTEMPTS = 3
# A measurement lists up to 256 shards.
LISTINGS_AT_ONCE = 8


class S3BlobStore:
    """Stores blobs as objects, one each, in an existing bucket."""

    # No single PUT for small blobs: it may arrive after its sender's crash and after the removal, and its object would
    # never be found. After an abort neither a late part nor a late completion has any effect.
    staged_is_readable = False
    verifies_itself = True
    records_before_receiving = True

    def __init__(self, bucket: S3Bucket, *, identity: Identity | None = None) -> None:
        """Use a bucket; with an `identity`, only if its marker matches the database.

        Raises ValueError for a bucket with versioning.
        """
        self.marked = MarkedBucket(bucket)
        self.marked.refuse_versions()
        self._bucket = bucket
        self._guard = None if identity is None else Guard(self.marked, identity)

    def require(self) -> None:
        """Check once that this is the right bucket and prefix."""
        if self._guard is not None:
            self._guard.require()

    def begin(self, version_id: UUID) -> str | None:
        """Create the multipart upload and return its id, to be recorded before anything is sent."""
        self.require()
        # If the response is lost, an upload without parts remains, for the bucket's rule
        # AbortIncompleteMultipartUpload.
        return self._bucket.create_upload(version_id)

    def receive(self, version_id: UUID, *, size_bytes: Size, upload_id: str | None = None) -> S3Receiver:
        """Prepare the buffer for one part."""
        return S3Receiver(self._bucket, version_id, size_bytes=size_bytes, upload_id=_require(upload_id))

    @measured("place")
    def place(self, blobs: Sequence[Blob]) -> dict[UUID, DomainError]:
        """Complete each upload that is not completed, and check its object."""
        self.require()
        return {blob.version_id: error for blob, error in for_each(blobs, self._place).items()}

    def open(self, version_id: UUID, *, placed: bool) -> S3Reader:  # noqa: ARG002 - the port's parameter
        """Return a reader without a request: each range is a request of its own."""
        self.require()
        return S3Reader(self._bucket, version_id)

    def can_read_staged(self, version_id: UUID) -> bool:  # noqa: ARG002 - the port's parameter
        """Return the same for each blob."""
        return self.staged_is_readable

    @measured("remove")
    def remove(self, blobs: Sequence[Blob]) -> dict[UUID, DomainError]:
        """Abort the uploads first, then delete the keys of the blobs without an upload."""
        self.require()
        # While an upload has parts, a completion could still create the object after its key was deleted.
        failures = {blob.version_id: error for blob, error in for_each(blobs, self._abort).items()}
        version_ids = [blob.version_id for blob in blobs if blob.version_id not in failures]
        for start in range(0, len(version_ids), DELETIONS_PER_REQUEST):
            failures |= self._delete(version_ids[start : start + DELETIONS_PER_REQUEST])
        return failures

    def abort(self, version_id: UUID) -> None:
        """Abort the blob's uploads."""
        self.require()
        self._abort(Blob(version_id=version_id, size_bytes=0, upload_id=UNKNOWN_UPLOAD))

    def list_unlocked(
        self,
        *,
        batch_size: int = 200,  # noqa: ARG002 - the port's parameter
    ) -> Generator[Sequence[UnlockedUpload], None, None]:
        """Yield nothing: each upload has a row with its id before its first byte."""
        yield from ()

    def disk(self) -> Disk | None:
        """Return None: a bucket has no disk of its own."""
        return None

    def measure(self, blobs: Sequence[Blob]) -> dict[UUID, Stored]:
        """List each shard between the first and the last of its blobs: ids of one time need few requests."""
        self.require()
        shards: dict[int, list[UUID]] = defaultdict(list)
        for blob in blobs:
            shards[blob.version_id.int & 0xFF].append(blob.version_id)
        with ThreadPoolExecutor(LISTINGS_AT_ONCE) as pool:
            found = {at.version_id: at for part in pool.map(self._measure, shards.values()) for at in part}
        unfinished = (self._measure_parts(blob) for blob in blobs if blob.version_id not in found)
        return found | {at.version_id: at for at in unfinished if at is not None}

    def list_placed(self) -> Generator[Sequence[Stored], None, None]:
        """Yield the objects below the prefix."""
        self.require()
        for page in self._bucket.list_objects():
            yield [Stored(version_id=at, size_bytes=size, is_placed=True) for at, size in page]

    @measured("check")
    def check(self) -> None:
        """Check that the bucket responds."""
        self._bucket.check()
        self.require()

    def _measure(self, version_ids: Sequence[UUID]) -> list[Stored]:
        wanted = set(version_ids)
        pages = self._bucket.list_objects(min(wanted), max(wanted))
        return [
            Stored(version_id=at, size_bytes=size, is_placed=True)
            for page in pages
            for at, size in page
            if at in wanted
        ]

    def _measure_parts(self, blob: Blob) -> Stored | None:
        """Return the size of an unfinished upload's parts; None if there is none."""
        parts = self._bucket.find_parts(blob.version_id, blob.upload_id) if blob.upload_id else None
        if parts is None:
            return None
        size_bytes = sum(part.size_bytes for part in parts)
        return Stored(version_id=blob.version_id, size_bytes=size_bytes, is_placed=False)

    def _place(self, blob: Blob) -> None:
        if blob.upload_id is not None:
            parts = self._bucket.find_parts(blob.version_id, blob.upload_id)
            if parts is not None:
                self._complete(blob, blob.upload_id, parts)
        self._require_placed(blob)

    def _complete(self, blob: Blob, upload_id: str, parts: Sequence[Part]) -> None:
        if sum(part.size_bytes for part in parts) != blob.size_bytes:
            raise BlobDamaged
        if not self._bucket.complete_upload(blob.version_id, upload_id, parts):
            # The object exists already; if it came from another upload, the parts of this one are deleted.
            self._bucket.abort_upload(blob.version_id, upload_id)

    def _require_placed(self, blob: Blob) -> None:
        # The HEAD decides, also after a lost response to the completion. The checksum is not sent with the completion,
        # because some servers compare it with a checksum of the parts' checksums.
        """Raise unless the object has the blob's size and checksum."""
        stored = self._bucket.head(blob.version_id)
        if stored.size_bytes != blob.size_bytes:
            raise BlobDamaged
        if blob.checksum is not None and stored.checksum not in (None, blob.checksum):
            raise BlobDamaged

    def _abort(self, blob: Blob) -> None:
        if blob.upload_id is None:
            return
        known = [blob.upload_id] if blob.upload_id else self._bucket.find_uploads(blob.version_id)
        for upload_id in known:
            self._abort_upload(blob.version_id, upload_id)

    def _abort_upload(self, version_id: UUID, upload_id: str) -> None:
        # A part that was being sent during an abort may be stored after it (S3's documentation says so): abort again.
        for _ in range(ABORT_ATTEMPTS):
            self._bucket.abort_upload(version_id, upload_id)
            if not self._bucket.find_parts(version_id, upload_id):
                return
        raise BlobStoreUnavailable("An aborted upload still has parts; retry.")

    def _delete(self, version_ids: Sequence[UUID]) -> dict[UUID, DomainError]:
        # Servers that refuse checksums refuse the batch too, which cannot be sent without one.
        if not self._bucket.checksums:
            return for_each(version_ids, self._bucket.delete)
        try:
            refused = self._bucket.delete_many(version_ids)
        except DomainError as error:
            return dict.fromkeys(version_ids, error)
        return {version_id: BlobStoreUnavailable() for version_id in refused}


class S3Receiver:
    """Sends one upload part by part."""

    def __init__(self, bucket: S3Bucket, version_id: UUID, *, size_bytes: Size, upload_id: str) -> None:
        """Allocate one part."""
        self._bucket = bucket
        self._version_id = version_id
        self._size = size_bytes
        self._upload_id = upload_id
        self._part = bytearray(max(1, min(part_size(largest(size_bytes)), largest(size_bytes))))
        self._filled = 0
        self._sent_parts = 0
        self._written = 0
        self._crc32 = 0
        self._over = False  # True: no more writes
        self._released = False  # True: discard does nothing

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Fill the part's buffer, and send it when it is full."""
        self._require_open()
        with memoryview(chunk).cast("B") as view:
            if self._written + len(view) > largest(self._size):
                raise ValueError("more bytes than announced")
            self._crc32 = zlib.crc32(view, self._crc32)
            self._written += len(view)
            done = 0
            while done < len(view):
                done += self._fill(view[done:])

    @measured("seal")
    def seal(self) -> Blob:
        """Send the last part (an empty one for an empty blob: an upload without parts cannot be completed)."""
        self._require_open()
        if not isinstance(self._size, AtMost) and self._written != self._size:
            raise ValueError("fewer bytes than announced")
        if self._filled or not self._sent_parts:
            del self._part[self._filled :]
            self._send()
        self._over = True
        return Blob(
            version_id=self._version_id,
            size_bytes=self._written,
            upload_id=self._upload_id,
            checksum=encode_crc32(self._crc32) if self._bucket.checksums else None,
        )

    def release(self) -> None:
        """Free the buffer; from now on only the row keeps the upload."""
        self._over = True
        self._released = True
        self._part = bytearray()

    def discard(self) -> None:
        """Abort the upload; if that fails, the sweep of recorded uploads does it."""
        if not self._released:
            with suppress(DomainError):
                self._bucket.abort_upload(self._version_id, self._upload_id)
            self.release()

    def _fill(self, view: memoryview) -> int:
        count = min(len(view), len(self._part) - self._filled)
        self._part[self._filled : self._filled + count] = view[:count]
        self._filled += count
        if self._filled == len(self._part):
            self._send()
        return count

    def _send(self) -> None:
        self._bucket.send_part(self._version_id, self._upload_id, self._sent_parts + 1, self._part)
        self._sent_parts += 1
        self._filled = 0

    def _require_open(self) -> None:
        if self._over:
            raise ValueError("this upload is over")


def part_size(size_bytes: int) -> int:
    """Return the smallest part size that needs at most 10,000 parts, and no less than 8 MiB."""
    return max(SMALLEST_PART_BYTES, -(-size_bytes // MAX_PARTS))


def _require(upload_id: str | None) -> str:
    if upload_id is None:
        raise ValueError("an upload to S3 needs the id that begin returned")
    return upload_id


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
        """Request the range now, so that a refusal comes before the response to the client begins."""
        self.close()
        if start >= stop:
            return iter(())
        self._body = self._bucket.get(self._version_id, start, stop)
        return self._read(self._body, start, stop)

    def close(self) -> None:
        """Close the connection of a range that was not read to its end."""
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
                # Resume at the byte at which the connection was lost.
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
