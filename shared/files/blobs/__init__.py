"""Blob stores: where file content lies. The port is `base`; `local` and `s3` keep it; this opens the configured one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from shared.files.blobs.base import BlobStore
from shared.files.blobs.local import LocalBlobStore


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Access:
    """How to reach an S3 server; what is None comes from the ambient AWS configuration (AWS_* variables, roles)."""

    endpoint_url: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    checksums: bool = True


def open_blob_store(url: str, *, s3: S3Access = S3Access()) -> BlobStore:
    """Open the store at `file:///path` (made if absent) or `s3://bucket/prefix` (a bucket that exists).

    Raises ValueError, BlobStoreUnavailable.
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.strip("/"):
        return LocalBlobStore(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        return _open_s3(parts.netloc, parts.path.strip("/"), s3)
    raise ValueError("a blob store is file:///path or s3://bucket/prefix")


def _open_s3(bucket: str, prefix: str, access: S3Access) -> BlobStore:
    # Imported here: the AWS client costs a process that stores locally 150 ms and some 20 MiB.
    from shared.files.blobs.multipart import S3BlobStore
    from shared.files.blobs.s3 import S3Bucket

    return S3BlobStore(
        S3Bucket(
            bucket,
            prefix=prefix,
            endpoint_url=access.endpoint_url,
            region=access.region,
            access_key_id=access.access_key_id,
            secret_access_key=access.secret_access_key,
            checksums=access.checksums,
        )
    )
