"""Open the blob store at the address in the settings."""

import os
import sys
from typing import Protocol

from shared.config.settings import Settings
from shared.db.database import Database
from shared.errors import DomainError
from shared.files.blobs import S3Access, open_blob_store, open_marked
from shared.files.blobs.base import BlobStore, BlobStoreUnavailable
from shared.files.blobs.marker import Identity, Marked
from shared.files.blobs.paired import PairedBlobStore
from shared.files.store_identity import FirstIdentity, RecordedIdentity, SecondIdentity
from shared.messaging.jobs import Context
from shared.observability.telemetry import get_logger

log = get_logger(__name__)


class StoreContext(Context, Protocol):
    """The context of handlers that use the blob store."""

    @property
    def store(self) -> BlobStore:
        """The blob store."""


def open_configured_store(settings: Settings, database: Database) -> BlobStore:
    """Open the store at BLOB_STORE; if the settings name a second store, open both as one.

    A store can be used only while its marker has the id that the database knows. Raises ValueError if an address is not
    the address of a store.
    """
    if settings.second_blob_store is not None:
        return open_pair(settings, database)
    return _open(settings.blob_store, settings, RecordedIdentity(database))


def open_pair(settings: Settings, database: Database) -> PairedBlobStore:
    """Open the two stores between which content is moved. Raises ValueError unless there are two."""
    if settings.second_blob_store is None or settings.second_blob_store == settings.blob_store:
        raise ValueError("set SECOND_BLOB_STORE to the store from which content is moved")
    return PairedBlobStore(
        _open(settings.blob_store, settings, FirstIdentity(database)),
        _open(settings.second_blob_store, settings, SecondIdentity(database)),
    )


def _open(url: str, settings: Settings, identity: Identity) -> BlobStore:
    return open_blob_store(
        url, s3=_s3_access(settings), identity=identity, reserve_bytes=settings.blob_store_reserve_bytes
    )


def refuse_wrong_store(store: BlobStore) -> None:
    """Exit this starting process with status 78 if its store is not the one that the database knows.

    If the database or the store does not respond, the process starts and reports that it is not ready.
    """
    try:
        store.require()
    except DomainError as error:
        # Exit only if the store responded with another marker: the setting is wrong, so a retry cannot succeed.
        if isinstance(error, BlobStoreUnavailable) and error.is_wrong:
            log.warning("process.not_started", reason=error.detail)
            sys.exit(os.EX_CONFIG)
        log.warning("blob_store.not_compared", error=error.code)


def open_configured_marker(settings: Settings) -> Marked:
    """Open the store at BLOB_STORE only to read or write its marker.

    Raises ValueError if the address is not a store's.
    """
    return open_marked(settings.blob_store, s3=_s3_access(settings))


def _s3_access(settings: Settings) -> S3Access:
    key_id, key = settings.s3_access_key_id, settings.s3_secret_access_key
    return S3Access(
        endpoint_url=settings.s3_endpoint_url,
        region=settings.s3_region,
        access_key_id=None if key_id is None else key_id.get_secret_value(),
        secret_access_key=None if key is None else key.get_secret_value(),
        checksums=settings.s3_checksums,
    )
