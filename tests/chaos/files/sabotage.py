"""Sabotage of files: each function breaks one rule in this process."""

import os
import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, delete

from shared.db.database import Database, Session
from shared.errors import ServiceUnavailable
from shared.files import access, content, sweeps
from shared.files.blobs import staging
from shared.files.blobs.base import Blob, BlobStore
from shared.files.lifecycle import expiry, garbage_collection
from shared.files.resources import Availability, File
from shared.files.staging import StagedContent
from shared.files.tables import blobs

DEATHS_IN_BETWEEN = 0.5


def rows_before_unlink() -> None:
    """Delete the row of a blob before its bytes: a crash in between leaks the bytes."""

    def remove_claimed(database: Database, store: BlobStore, claimed: Sequence[Blob]) -> int:
        ids = [blob.version_id for blob in claimed]
        with database.autocommit() as session:
            session.execute(delete(blobs).where(blobs.c.version_id.in_(ids)))
        if random.random() < DEATHS_IN_BETWEEN:
            os.kill(os.getpid(), signal.SIGKILL)
        store.remove(claimed)
        return len(claimed)

    garbage_collection.remove_claimed = remove_claimed
    setattr(expiry, "remove_claimed", remove_claimed)  # noqa: B010 (the module does not export the name)


def sweep_without_asking() -> None:
    """Delete staged bytes without checking whether a row owns them: acknowledged content is lost."""

    def take_all(database: Database, ids: Sequence[UUID]) -> set[UUID]:
        return set(ids)

    sweeps.claim_orphans = take_all


def ignore_staging_lock() -> None:
    """Treat bytes of a running upload as abandoned: the upload then fails without a fault of the client."""
    setattr(staging, "_is_lockable", bool)  # noqa: B010 (of another type, but any descriptor will do)


def serve_the_ended() -> None:
    """Serve content to callers after its deadline."""

    def refuse_nothing(file: File) -> None:
        del file

    setattr(content, "refuse_ended", refuse_nothing)  # noqa: B010 (the module does not export the name)


def discard_the_unheard() -> None:
    """Delete the bytes of a version if the commit's response was lost, as if it had rolled back."""
    commit = StagedContent.committing

    @contextmanager
    def commit_or_not(staged: StagedContent, *, in_transaction: bool = False) -> Iterator[Session]:
        try:
            with commit(staged, in_transaction=in_transaction) as session:
                yield session
        except ServiceUnavailable:
            staged._may_be_committed = False
            raise

    setattr(StagedContent, "committing", commit_or_not)  # noqa: B010 (mypy objects to an assignment)


def go_by_own_clock() -> None:
    """Decide by the process's clock, instead of the database's, whether a deadline has passed."""
    read = access.read_file

    def read_by_own_clock(row: Row[Any], pending: Availability) -> File:
        file = read(row, pending)
        if file.availability is Availability.DELETED or file.retention_expires_at is None:
            return file
        is_over = file.retention_expires_at <= datetime.now(UTC)
        return replace(file, availability=Availability.EXPIRED if is_over else pending)

    access.read_file = read_by_own_clock
