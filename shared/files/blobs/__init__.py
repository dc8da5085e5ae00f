"""Blob stores for file content: the port (`base`), its adapters (`local`, `s3_store`), and the way to open one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from shared.files.blobs.base import BlobStore
from shared.files.blobs.directory import LocalDirectory
from shared.files.blobs.local import LocalBlobStore
from shared.files.blobs.marker import Identity, Marked

if TYPE_CHECKING:
    from shared.files.blobs.s3_store import S3BlobStore


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Access:
    """How to reach an S3 server; None takes the value of the AWS environment (AWS_* variables, roles)."""

    endpoint_url: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    checksums: bool = True


def open_blob_store(
    url: str, *, s3: S3Access = S3Access(), identity: Identity | None = None, reserve_bytes: int = 0
) -> BlobStore:
    """Open the store at `file:///path` or `s3://bucket/prefix` (an existing bucket).

    With an `identity` it is usable only while its marker matches the database; without one, an absent directory is
    created. `reserve_bytes` of a local disk stay free. Raises ValueError; BlobStoreUnavailable without an identity.
    """
    if (root := local_root(url)) is not None:
        return LocalBlobStore(root, identity=identity, reserve_bytes=reserve_bytes)
    return _open_s3(url, s3, identity)


def open_marked(url: str, *, s3: S3Access = S3Access()) -> Marked:
    """Open a store to read or write its marker only. Raises ValueError."""
    if (root := local_root(url)) is not None:
        return LocalDirectory(root)
    return _open_s3(url, s3, None).marked


def local_root(url: str) -> Path | None:
    """Return the directory of a local store; None for another kind of store."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.strip("/"):
        return Path(unquote(parts.path))
    return None


def _open_s3(url: str, access: S3Access, identity: Identity | None) -> S3BlobStore:
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc:
        raise ValueError("a blob store is file:///path or s3://bucket/prefix")
    # Imported here: the AWS client costs a process that stores locally 150 ms and some 20 MiB.
    from shared.files.blobs.s3 import S3Bucket
    from shared.files.blobs.s3_store import S3BlobStore

    return S3BlobStore(
        S3Bucket(
            parts.netloc,
            prefix=parts.path.strip("/"),
            endpoint_url=access.endpoint_url,
            region=access.region,
            access_key_id=access.access_key_id,
            secret_access_key=access.secret_access_key,
            checksums=access.checksums,
        ),
        identity=identity,
    )
