"""The stores under contract, each with a view of its content from outside."""

import random
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit
from uuid import UUID

from shared.files.blobs import S3Access, open_blob_store
from shared.files.blobs.base import Blob, BlobStore
from shared.files.blobs.s3 import S3Bucket
from shared.files.blobs.s3_store import S3BlobStore
from shared.ids import new_id

PIECE_BYTES = 64 * 1024


class Bench(Protocol):
    """A store, a second handle as of another process, and a view of its content."""

    url: str
    s3: S3Access

    @property
    def store(self) -> BlobStore: ...

    def leftovers(self) -> set[str]:
        """Return the names of everything that takes up space, finished or not."""

    def tamper(self, version_id: UUID) -> None:
        """Replace a placed blob by shorter content."""


@dataclass
class LocalBench:
    """A store in a directory."""

    root: Path
    s3: S3Access = field(default_factory=S3Access)

    def __post_init__(self) -> None:
        self.url = self.root.as_uri()
        self.store = open_blob_store(self.url)

    def leftovers(self) -> set[str]:
        return {path.name for path in self.root.rglob("*") if path.is_file()}

    def tamper(self, version_id: UUID) -> None:
        (path,) = self.root.rglob(str(version_id))
        path.write_bytes(b"x")


@dataclass
class S3Bench:
    """A store in a bucket of its own.

    Creating a client takes as long as most tests. Tests that do not change the client share one for each server.
    """

    url: str
    s3: S3Access
    shares_client: bool = False

    def __post_init__(self) -> None:
        address = urlsplit(self.url)
        self.bucket_name = address.netloc
        self.bucket = copy(_bucket_of(self.s3)) if self.shares_client else _make_bucket(self.s3)
        self.bucket.name = self.bucket_name
        self.bucket.prefix = f"{address.path.strip('/')}/".lstrip("/")
        self.client = self.bucket.client
        self.client.create_bucket(Bucket=self.bucket_name)
        self.store = S3BlobStore(self.bucket)

    def leftovers(self) -> set[str]:
        objects = self.client.list_objects_v2(Bucket=self.bucket_name).get("Contents", ())
        uploads = self.client.list_multipart_uploads(Bucket=self.bucket_name).get("Uploads", ())
        return {found["Key"] for found in objects} | {found["Key"] for found in uploads}

    def tamper(self, version_id: UUID) -> None:
        self.client.put_object(Bucket=self.bucket_name, Key=self.bucket.key(version_id), Body=b"x")


def _make_bucket(s3: S3Access) -> S3Bucket:
    return S3Bucket(
        "",
        endpoint_url=s3.endpoint_url,
        region=s3.region,
        access_key_id=s3.access_key_id,
        secret_access_key=s3.secret_access_key,
    )


_bucket_of = cache(_make_bucket)


def content_of(version_id: UUID, size_bytes: int) -> bytes:
    """Return content that differs for each version."""
    return random.Random(version_id.int).randbytes(size_bytes)


def stage(store: BlobStore, size_bytes: int = 1000) -> Blob:
    """Receive a blob's content as the web process does."""
    version_id = new_id()
    receiver = store.receive(version_id, size_bytes=size_bytes, upload_id=store.begin(version_id))
    content = content_of(version_id, size_bytes)
    for start in range(0, size_bytes, PIECE_BYTES):
        receiver.write(content[start : start + PIECE_BYTES])
    blob = receiver.seal()
    receiver.release()
    return blob


def put(store: BlobStore, size_bytes: int = 1000) -> Blob:
    """Receive and place a blob."""
    blob = stage(store, size_bytes)
    assert store.place([blob]) == {}
    return blob


def read(store: BlobStore, blob: Blob, *, placed: bool = True) -> bytes:
    """Read a blob whole."""
    with store.open(blob.version_id, placed=placed) as reader:
        return b"".join(reader.chunks(0, blob.size_bytes))


def is_intact(store: BlobStore, blob: Blob, *, placed: bool = True) -> bool:
    """Return whether a blob reads back as it was received."""
    return read(store, blob, placed=placed) == content_of(blob.version_id, blob.size_bytes)


def sweep_without_rows(store: BlobStore, recorded: Blob | None = None) -> None:
    """Run the sweep as after a web process died before its commit. `recorded` is the row that it left, if any."""
    for batch in store.list_unlocked():
        for found in batch:
            found.discard()
    if recorded is not None:
        assert store.remove([recorded]) == {}
