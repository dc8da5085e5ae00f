"""The requests of a blob store to an S3 bucket, and their errors as errors of the domain.

Only this module imports the AWS client. Each method is one request (or one listing), repeated by the client after
network errors and safe to repeat.
"""

from __future__ import annotations

import zlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from shared.errors import DomainError
from shared.files.blobs.base import (
    BlobDamaged,
    BlobMissing,
    BlobStoreUnavailable,
    StorageFull,
    parse_version_id,
)
from shared.files.blobs.marker import MARKER, parse_store_id

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_ABSENT = frozenset({"NoSuchKey", "NoSuchUpload", "NotFound", "404"})
_UNSUPPORTED = frozenset({"NotImplemented", "501"})
_EXISTS = frozenset({"PreconditionFailed", "412"})
_OUTSIDE = frozenset({"InvalidRange", "416"})
_FULL = frozenset({"InsufficientStorage", "QuotaExceeded", "XMinioStorageFull", "507"})


Listed = tuple[UUID, int]
"""The version id of an object, and its size in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One stored part of an upload."""

    number: int
    etag: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The server's description of an object; `checksum` is the CRC-32 of the whole if the server keeps one."""

    size_bytes: int
    checksum: str | None


class Stream(Protocol):
    """The body of a response while it arrives; reading fails as `reading_errors` says."""

    def read(self, size_bytes: int, /) -> bytes:
        """Return up to so many bytes."""

    def close(self) -> None:
        """Drop the connection unless all was read."""


class S3Bucket:
    """A bucket, the service's prefix in it, and the requests to it."""

    def __init__(
        self,
        bucket: str,
        *,
        prefix: str = "",
        endpoint_url: str | None = None,
        region: str | None = None,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        checksums: bool = True,
    ) -> None:
        """Create a client, safe to share between threads; None takes the value of the AWS environment."""
        self.client: S3Client = Session().client(
            "s3",
            endpoint_url=endpoint_url,
            region_name=region,
            aws_access_key_id=access_key_id,
            aws_secret_access_key=secret_access_key,
            config=_configuration(path_style=endpoint_url is not None, checksums=checksums),
        )
        self.name = bucket
        self.prefix = f"{prefix}/" if prefix else ""
        self.checksums = checksums

    def key(self, version_id: UUID) -> str:
        """Return the object's key; it begins with random digits, which spread load over the server's partitions."""
        return f"{self.prefix}{version_id.int & 0xFF:02x}/{version_id}"

    def check(self) -> None:
        """Raise BlobStoreUnavailable unless the bucket responds."""
        try:
            with request_errors():
                self.client.head_bucket(Bucket=self.name)
        except BlobMissing as error:
            raise BlobStoreUnavailable("The bucket of the blob store does not exist.") from error

    def create_upload(self, version_id: UUID) -> str:
        """Create a multipart upload and return its id."""
        where = {"Bucket": self.name, "Key": self.key(version_id)}
        checksum = {"ChecksumAlgorithm": "CRC32", "ChecksumType": "FULL_OBJECT"} if self.checksums else {}
        with request_errors():
            return self.client.create_multipart_upload(**where, **checksum)["UploadId"]  # type: ignore[arg-type]

    def send_part(self, version_id: UUID, upload_id: str, number: int, body: bytearray) -> None:
        """Store one part with its CRC-32, which the server checks."""
        checksum = {"ChecksumCRC32": encode_crc32(zlib.crc32(body))} if self.checksums else {}
        try:
            with request_errors():
                self.client.upload_part(
                    Bucket=self.name,
                    Key=self.key(version_id),
                    UploadId=upload_id,
                    PartNumber=number,
                    Body=body,  # type: ignore[arg-type]  # the stubs know bytes only
                    **checksum,  # type: ignore[arg-type]
                )
        except BlobMissing as error:
            raise BlobStoreUnavailable("This upload exceeded its time limit and was deleted.") from error

    def find_parts(self, version_id: UUID, upload_id: str) -> list[Part] | None:
        """Return an upload's parts; None if the upload is completed or aborted."""
        pages = self.client.get_paginator("list_parts")
        try:
            with request_errors():
                return [
                    Part(number=part["PartNumber"], etag=part["ETag"], size_bytes=part["Size"])
                    for page in pages.paginate(Bucket=self.name, Key=self.key(version_id), UploadId=upload_id)
                    for part in page.get("Parts", ())
                ]
        except BlobMissing:
            return None

    def find_uploads(self, version_id: UUID) -> list[str]:
        """Return the ids of a key's unfinished uploads; none if the server does not support the listing."""
        key = self.key(version_id)
        pages = self.client.get_paginator("list_multipart_uploads")
        try:
            with request_errors(passing=_UNSUPPORTED):
                return [
                    upload["UploadId"]
                    for page in pages.paginate(Bucket=self.name, Prefix=key)
                    for upload in page.get("Uploads", ())
                    if upload["Key"] == key
                ]
        except ClientError:
            return []

    def complete_upload(self, version_id: UUID, upload_id: str, parts: Sequence[Part]) -> bool:
        """Make the parts one object; return False if the upload is over or the object exists already."""
        # IfNoneMatch is tried first: a server that does not support it refuses before it does anything.
        for fence in ({"IfNoneMatch": "*"}, {}):
            try:
                with request_errors(passing=_UNSUPPORTED | _EXISTS):
                    self.client.complete_multipart_upload(
                        Bucket=self.name,
                        Key=self.key(version_id),
                        UploadId=upload_id,
                        MultipartUpload={
                            "Parts": [{"PartNumber": part.number, "ETag": part.etag} for part in parts]
                        },
                        **fence,  # type: ignore[arg-type]
                    )
                    return True
            except BlobMissing:
                return False
            except ClientError as error:
                if _code(error) in _EXISTS:
                    return False
        raise BlobStoreUnavailable("The S3 server does not support CompleteMultipartUpload.")

    def abort_upload(self, version_id: UUID, upload_id: str) -> None:
        """End an upload and delete its parts; do nothing if it is over."""
        try:
            with request_errors():
                self.client.abort_multipart_upload(
                    Bucket=self.name, Key=self.key(version_id), UploadId=upload_id
                )
        except BlobMissing:
            return

    def head(self, version_id: UUID) -> Stored:
        """Return the server's description of an object. Raises BlobMissing, BlobStoreUnavailable."""
        mode = {"ChecksumMode": "ENABLED"} if self.checksums else {}
        with request_errors():
            found = self.client.head_object(Bucket=self.name, Key=self.key(version_id), **mode)  # type: ignore[arg-type]
        of_the_whole = found.get("ChecksumType") == "FULL_OBJECT"
        return Stored(
            size_bytes=found["ContentLength"], checksum=found.get("ChecksumCRC32") if of_the_whole else None
        )

    def list_objects(self, first: UUID | None = None, last: UUID | None = None) -> Iterator[list[Listed]]:
        """Yield blobs in pages: all, or those between two of one shard, both included."""
        # StartAfter is exclusive: any text just before the first key will do, such as the key without its end.
        after = "" if first is None else self.key(first)[:-1]
        pages = self.client.get_paginator("list_objects_v2")
        with request_errors():
            for page in pages.paginate(Bucket=self.name, Prefix=self.prefix, StartAfter=after):
                found = page.get("Contents", ())
                listed = [at for at in found if last is None or at["Key"] <= self.key(last)]
                ids = ((parse_version_id(at["Key"].rpartition("/")[2]), at) for at in listed)
                yield [(at, o["Size"]) for at, o in ids if at is not None and self.key(at) == o["Key"]]
                if len(listed) < len(found):
                    return

    def get(self, version_id: UUID, start: int, stop: int) -> Stream:
        """Request the bytes start..stop (exclusive). Raises BlobMissing, BlobDamaged, BlobStoreUnavailable."""
        with request_errors():
            found = self.client.get_object(
                Bucket=self.name, Key=self.key(version_id), Range=f"bytes={start}-{stop - 1}"
            )
        if found["ContentLength"] != stop - start:  # a truncated object, or a server that ignores ranges
            found["Body"].close()
            raise BlobDamaged
        return found["Body"]

    def delete(self, version_id: UUID) -> None:
        """Delete one object; do nothing if there is none."""
        try:
            with request_errors():
                self.client.delete_object(Bucket=self.name, Key=self.key(version_id))
        except BlobMissing:
            return

    def delete_many(self, version_ids: Sequence[UUID]) -> list[UUID]:
        """Delete up to a thousand objects with one request; return those that the server refused to delete."""
        by_key = {self.key(version_id): version_id for version_id in version_ids}
        with request_errors():
            answer = self.client.delete_objects(
                Bucket=self.name, Delete={"Objects": [{"Key": key} for key in by_key], "Quiet": True}
            )
        return [by_key[e["Key"]] for e in answer.get("Errors", ()) if e.get("Code") not in _ABSENT]


@contextmanager
def reading_errors() -> Iterator[None]:
    """Translate an interrupted stream into BlobStoreUnavailable."""
    try:
        yield
    except BotoCoreError as error:
        raise BlobStoreUnavailable from error


def encode_crc32(crc32: int) -> str:
    """Return a CRC-32 as S3 writes it: big-endian, base64."""
    return b64encode(crc32.to_bytes(4)).decode("ascii")


def _configuration(*, path_style: bool, checksums: bool) -> Config:
    return Config(
        connect_timeout=5,
        read_timeout=60,
        max_pool_connections=32,
        retries={"mode": "standard", "total_max_attempts": 4},
        s3={"addressing_style": "path" if path_style else "auto"},
        request_checksum_calculation="when_supported" if checksums else "when_required",
        # Some servers send the checksum of the whole object with a range, and the client would refuse it.
        response_checksum_validation="when_required",
    )


@contextmanager
def request_errors(passing: frozenset[str] = frozenset()) -> Iterator[None]:
    """Translate the server's errors, and missing responses, into errors of the domain."""
    try:
        yield
    except ClientError as error:
        if _code(error) in passing:
            raise
        raise _translate(_code(error)) from error
    except BotoCoreError as error:
        raise BlobStoreUnavailable from error


def _translate(code: str) -> BlobMissing | BlobDamaged | StorageFull | BlobStoreUnavailable:
    if code in _ABSENT:
        return BlobMissing()
    if code in _OUTSIDE:
        return BlobDamaged()
    return StorageFull() if code in _FULL else BlobStoreUnavailable()


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


MAX_MARKER_BYTES = 1000


class MarkedBucket:
    """A bucket and prefix that are, or will become, a store."""

    def __init__(self, bucket: S3Bucket) -> None:
        self._bucket = bucket
        self.address = f"s3://{bucket.name}/{bucket.prefix}"

    def refuse_versions(self) -> None:
        """Raise ValueError for a bucket with versioning, in which deleted bytes stay.

        A server without versioning, or one that does not report it, is accepted.
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
        """Return a constant: a bucket cannot be unmounted, so its marker is read once."""
        return self.address

    def find_id(self) -> UUID | None:
        """Return the id in the marker; None without a marker."""
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
        """Write the marker; the caller has the lock in the database and found no marker."""
        bucket = self._bucket
        with request_errors():
            bucket.client.put_object(Bucket=bucket.name, Key=self._key, Body=f"{store_id}\n".encode())

    def is_empty(self) -> bool:
        """Return whether there is no object in a directory below the prefix, as blobs are."""
        with request_errors():
            found = self._bucket.client.list_objects_v2(
                Bucket=self._bucket.name, Prefix=self._bucket.prefix, MaxKeys=10
            )
        names = (at["Key"].removeprefix(self._bucket.prefix) for at in found.get("Contents", ()))
        return not any("/" in name for name in names)

    def holds(self, version_id: UUID) -> bool:
        """Return whether the object exists; a blob that is not placed has none."""
        try:
            self._bucket.head(version_id)
        except BlobMissing:
            return False
        return True

    def prepare(self) -> None:
        """Do nothing: a bucket has no directories."""

    @property
    def _key(self) -> str:
        return self._bucket.prefix + MARKER
