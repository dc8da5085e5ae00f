"""Make received media a file and its import Stored, in one transaction, with the word to the distribution.

Who may import is asked of live rows again within that transaction: what was allowed when the media was pushed may not
be any more. Then nothing is written and the bytes are taken back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from shared.database import Database, Session
from shared.errors import DomainError
from shared.files.blobs.base import Blob, BlobStore, Size
from shared.files.imports import NewMedia, insert_media
from shared.files.operations import ReceivedPart
from shared.files.staging import Receive, stage_and_commit
from shared.identity.receiving import LiveReceiver
from shared.ids import new_id
from shared.media.authority import authorize_import
from shared.media.claims import LeaseLost, mark_stored
from shared.media.imports import Import
from shared.media.notifications import notify_import
from shared.media.reception import Fetching
from shared.settings import Settings

End = Callable[[Session, LiveReceiver, UUID, ReceivedPart, Blob], "Import | None"]
"""Writes the import's row as Stored, with this file and version; None when another has done so."""


def store_fetched(
    database: Database, store: BlobStore, settings: Settings, claimed: Import, fetching: Fetching
) -> Import:
    """Fetch the content of a claimed import and store it.

    Raises what `Fetching.receive` and `authorize_import` raise, LeaseLost, BlobStoreUnavailable, StorageFull,
    Unavailable.
    """

    def end(
        session: Session, receiver: LiveReceiver, file_id: UUID, _: ReceivedPart, blob: Blob
    ) -> Import | None:
        kept_days = receiver.media_retention_days + settings.media_record_days
        return mark_stored(session, claimed, file_id=file_id, version_id=blob.version_id, kept_days=kept_days)

    stored = store_media(
        database,
        store,
        distribution_id=claimed.distribution_id,
        size=fetching.size,
        time_limit_seconds=settings.media_fetch_seconds,
        receive=fetching.receive,
        end=end,
    )
    if stored is None:
        raise LeaseLost
    return stored


def store_media(
    database: Database,
    store: BlobStore,
    *,
    distribution_id: UUID,
    size: Size,
    time_limit_seconds: float,
    receive: Receive,
    end: End,
) -> Import | None:
    """Receive content and commit its file with its import; None when `end` finds that another has done so."""
    storing = _Storing(store, distribution_id, end)
    _, stored = stage_and_commit(
        database,
        store,
        version_id=new_id(),
        byte_size=size,
        time_limit_seconds=time_limit_seconds,
        receive=receive,
        commit=storing.commit,
        begin=database.transaction,
    )
    if storing.refusal is not None:
        raise storing.refusal
    return stored


@dataclass
class _Storing:
    """One commit, and why it was refused."""

    store: BlobStore
    distribution_id: UUID
    end: End
    refusal: DomainError | None = None

    def commit(self, session: Session, part: ReceivedPart, blob: Blob) -> Import | None:
        try:
            receiver = authorize_import(session, self.distribution_id)
        except DomainError as refusal:
            # Not raised here: nothing is written, so the staged bytes are taken back at once.
            self.refusal = refusal
            return None
        file_id = new_id()
        stored = self.end(session, receiver, file_id, part, blob)
        if stored is None:
            return None
        media = NewMedia(
            file_id=file_id,
            organization_id=receiver.organization_id,
            owner_id=receiver.principal_id,
            retention_days=receiver.media_retention_days,
        )
        insert_media(session, self.store, media, part, blob)
        notify_import(session, stored)
        return stored
