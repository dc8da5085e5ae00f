"""Sabotage of messaging media: each function breaks one rule in this process."""

import random
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from shared.db.database import Session
from shared.deliveries.channels import Address, Message
from shared.media.importing import claims, storage
from shared.media.importing.imports import Import, ImportState
from shared.media.notifications.notification_channel import DistributionChannel

OFTEN = 0.9


def store_again() -> None:
    """Store many attachments, report them as stored, and leave their imports pending, to be fetched again."""
    mark_stored = claims.mark_stored

    def mark_most(
        session: Session, claimed: Import, *, file_id: UUID, version_id: UUID, kept_days: int
    ) -> Import | None:
        if claimed.attempts > 1 or random.random() > OFTEN:
            return mark_stored(session, claimed, file_id=file_id, version_id=version_id, kept_days=kept_days)
        claims.release_for_retry(session, claimed, code="again", retry_after_seconds=None)
        return replace(claimed, state=ImportState.STORED, file_id=file_id, version_id=version_id)

    setattr(storage, "mark_stored", mark_most)  # noqa: B010 (the module does not export the name)


def forget_events() -> None:
    """Drop the notifications of many stored attachments."""
    notify_import = storage.notify_import  # type: ignore[attr-defined]

    def notify_most(session: Session, ended: Import) -> None:
        if random.random() > OFTEN:
            notify_import(session, ended)

    setattr(storage, "notify_import", notify_most)  # noqa: B010 (the module does not export the name)


def rename_events() -> None:
    """Send every attempt of a notification under a new id."""
    find_address: Any = DistributionChannel.find_address

    def find_renamed(self: DistributionChannel, session: Session, message: Message) -> Address | None:
        found: Address | None = find_address(self, session, replace(message, id=uuid4()))
        return found

    setattr(DistributionChannel, "find_address", find_renamed)  # noqa: B010 (mypy objects to an assignment)
