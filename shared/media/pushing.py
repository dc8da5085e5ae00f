"""Store media that a distribution brings along itself: the import is Stored when its push is answered.

The bytes take the way of every upload, stage → commit → place, and the import's row is written with the file's: a push
that dies has done nothing, one that was answered cannot be undone. Of pushes of one attachment, however many at once,
the first to commit makes the file; the others, if they brought the same, get its import.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from shared import failpoints
from shared.body_errors import ByteSizeMismatch, DigestMismatch
from shared.database import Database, Session
from shared.files.blobs.base import AtMost, Blob, BlobStore
from shared.files.operations import ReceivedPart
from shared.files.staging import OpenReceiver
from shared.identity.receiving import LiveReceiver
from shared.media.attachments import Attachment
from shared.media.authority import authorize_import
from shared.media.claims import ending
from shared.media.descriptions import hash_description, normalize
from shared.media.imports import STANDARD, Import, ImportState, get_repeated, insert_import
from shared.media.media_types import label
from shared.media.reception import Content
from shared.media.storing import store_media
from shared.settings import Settings
from shared.telemetry import IMPORTS


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedPart:
    """What a push brought: the attachment as its fields describe it, and the part's own description.

    `part` is what arrived; `head` is how its content begins.
    """

    attachment: Attachment
    part: ReceivedPart
    head: bytes


ReceivePush = Callable[[OpenReceiver | None], PushedPart]
"""Receives the body, its content into the receiver; raises the errors of `shared/body_errors.py`."""


def push_content(
    database: Database,
    store: BlobStore,
    settings: Settings,
    *,
    distribution_id: UUID,
    receive: ReceivePush,
    time_limit_seconds: float,
) -> Import:
    """Store pushed content as a file, or give the import that the same push made before.

    Raises what `authorize_import` and `receive` raise, ByteSizeMismatch, DigestMismatch, MediaTypeMismatch,
    ImportConflict, ValidationFailed, BlobStoreUnavailable, StorageFull, Unavailable.
    """
    with database.autocommit() as session:
        authorize_import(session, distribution_id)
    push = _Push(settings, distribution_id, receive)
    stored = store_media(
        database,
        store,
        distribution_id=distribution_id,
        size=AtMost(settings.max_media_bytes),
        time_limit_seconds=time_limit_seconds,
        receive=push.receive,
        end=push.end,
    )
    failpoints.hit("push.stored")
    if stored is None:
        with database.autocommit() as session:
            return push.get_first(session)
    IMPORTS.labels(STANDARD, "stored").inc()
    return stored


class _Push:
    """One push, from its body to its row."""

    def __init__(self, settings: Settings, distribution_id: UUID, receive: ReceivePush) -> None:
        self._settings = settings
        self._distribution_id = distribution_id
        self._receive = receive
        self._attachment: Attachment | None = None

    @property
    def attachment(self) -> Attachment:
        """What was received, described by what it is."""
        if self._attachment is None:
            raise RuntimeError("nothing was received yet")
        return self._attachment

    def receive(self, open_receiver: OpenReceiver | None) -> Content:
        pushed = self._receive(open_receiver)
        said, part = normalize(pushed.attachment), pushed.part
        if said.size_bytes not in (None, part.byte_size):
            raise ByteSizeMismatch(f"The content has {part.byte_size} bytes, not byteSize={said.size_bytes}.")
        if said.sha256 not in (None, part.sha256):
            raise DigestMismatch("The content does not have the digest that sha256 gives.")
        content = Content(
            file_name=said.file_name or part.file_name,
            media_type=label(said.media_type or part.media_type, pushed.head),
            byte_size=part.byte_size,
            sha256=part.sha256,
        )
        self._attachment = Attachment(
            message_id=said.message_id,
            attachment_id=said.attachment_id,
            location={},
            file_name=content.file_name,
            media_type=content.media_type,
            size_bytes=content.byte_size,
            sha256=content.sha256,
            conversation_id=said.conversation_id,
        )
        return content

    def end(
        self, session: Session, receiver: LiveReceiver, file_id: UUID, _: ReceivedPart, blob: Blob
    ) -> Import | None:
        kept_days = receiver.media_retention_days + self._settings.media_record_days
        values = {
            "distribution_id": self._distribution_id,
            "organization_id": receiver.organization_id,
            "network": STANDARD,
            "request_hash": hash_description(self.attachment),
            "state": ImportState.STORED.value,
            "file_id": file_id,
            "version_id": blob.version_id,
            **ending(kept_days),
        }
        return insert_import(session, values, self.attachment)

    def get_first(self, session: Session) -> Import:
        return get_repeated(
            session,
            distribution_id=self._distribution_id,
            network=STANDARD,
            attachment=self.attachment,
            request_hash=hash_description(self.attachment),
        )
