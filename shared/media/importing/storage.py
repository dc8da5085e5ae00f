"""Store fetched media. One transaction writes the file, the import's state and the notification.

The transaction authorizes the import again, because a permission may have been revoked since the push. If the import is
no longer authorized, the transaction writes nothing and the bytes are deleted.
"""

from uuid import UUID

from shared.config.settings import Settings
from shared.db.database import Database, Session
from shared.files.blobs.base import BlobStore
from shared.files.imports import NewMedia, write_media
from shared.files.resources import ReceivedContent
from shared.files.staging import StagedContent, stage
from shared.identity.authentication.distribution_lookup import LiveReceiver
from shared.ids import new_id
from shared.media.importing.authority import authorize_import
from shared.media.importing.claims import LeaseLost, mark_stored
from shared.media.importing.download import Download
from shared.media.importing.import_notifications import notify_import
from shared.media.importing.imports import Import


def store_fetched(
    database: Database, store: BlobStore, settings: Settings, claimed: Import, download: Download
) -> Import:
    """Fetch the content of a claimed import and store it.

    Raises what `Download.receive` and `authorize_import` raise, LeaseLost, BlobStoreUnavailable, StorageFull and
    ServiceUnavailable.
    """
    file_id = new_id()
    with stage(
        database, store, size=download.size, time_limit_seconds=settings.media_fetch_seconds
    ) as staged:
        content = download.receive(staged)
        staged.seal()
        with staged.committing(in_transaction=True) as session:
            receiver = authorize_import(session, claimed.distribution_id)
            kept_days = receiver.media_retention_days + settings.media_record_days
            stored = mark_stored(
                session, claimed, file_id=file_id, version_id=staged.version_id, kept_days=kept_days
            )
            if stored is not None:
                write_file(session, staged, receiver, file_id, content)
                notify_import(session, stored)
    # Another worker has claimed the import, so the transaction wrote nothing. The staged bytes are deleted.
    if stored is None:
        raise LeaseLost
    return stored


def write_file(
    session: Session, staged: StagedContent, receiver: LiveReceiver, file_id: UUID, content: ReceivedContent
) -> None:
    """Write the file of an import. The receiving identity owns the file. Raises ServiceUnavailable."""
    media = NewMedia(
        file_id=file_id,
        organization_id=receiver.organization_id,
        owner_id=receiver.principal_id,
        distribution_id=receiver.distribution_id,
        retention_days=receiver.media_retention_days,
    )
    write_media(session, staged, media, content)
