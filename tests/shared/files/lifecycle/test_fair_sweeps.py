"""Expired files and uploads of one organization delay another's by one batch at most."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from shared.db.database import Database
from shared.files.blobs.base import Blob
from shared.files.lifecycle import expiry, placement
from shared.files.lifecycle.expiry import expire_due
from shared.files.lifecycle.placement import place_staged
from shared.files.resumable import expiry as upload_expiry
from shared.files.tables import resumable_uploads
from shared.ids import new_id
from shared.runtime.batches import budget
from tests.shared.files.conftest import Shelf
from tests.support.data.query_plans import explain
from tests.support.data.row_factory import plant


@pytest.fixture(autouse=True)
def _no_files(database: Database) -> None:
    with database.transaction() as session:
        for table in ("blobs", "file_operations", "file_versions", "files"):
            session.execute(text(f"DELETE FROM {table}"))


def add_files(database: Database, organization_id: UUID, count: int, *, deadline: str) -> None:
    with database.transaction() as session:
        session.execute(
            text(f"""
                INSERT INTO files (id, organization_id, payer_id, purpose, owner_kind, owner_id, state,
                    current_version_id, revision, retention_expires_at)
                SELECT gen_random_uuid(), :organization, :organization, 'MessagingMedia', 'PrincipalIdentity',
                    gen_random_uuid(), 'Available', gen_random_uuid(), 1, {deadline}
                FROM generate_series(1, :count)"""),
            {"organization": organization_id, "count": count},
        )


def count_expired(database: Database, organization_id: UUID) -> int:
    with database.transaction() as session:
        expired = "SELECT count(*) FROM files WHERE organization_id = :id AND state = 'Expired'"
        return int(session.execute(text(expired), {"id": organization_id}).scalar_one())


def test_many_expired_files_of_one_organization_do_not_delay_anothers(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "BATCH_SIZE", 20)
    many, others = new_id(), [new_id() for _ in range(3)]
    add_files(shelf.database, many, 100, deadline="now() - interval '1 hour'")
    for other in others:
        add_files(shelf.database, other, 1, deadline="now() - interval '1 s'")
    with budget(0):
        assert expire_due(shelf.database, shelf.store) == 20
    assert [count_expired(shelf.database, at) for at in (many, *others)] == [17, 1, 1, 1]
    assert expire_due(shelf.database, shelf.store) == 83


def test_fair_search_does_not_read_rows_that_expire_later(database: Database) -> None:
    for deadline in ("now() - interval '1 hour'", "now() + interval '1 day'"):
        add_files(database, new_id(), 10_000, deadline=deadline)
        add_files(database, new_id(), 10, deadline=deadline)
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE files"))
    plan = explain(database, expiry.FAIR, {"each": 20, "limit": 50})
    assert "ix_files_due_by_organization" in plan.indexes
    assert plan.rows_removed == 0
    assert plan.blocks < 200


def test_many_uploads_of_one_organization_do_not_delay_anothers(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "BATCH_SIZE", 4)
    staged = [shelf.upload() for _ in range(20)]
    others = [file.version.id for file in staged[-3:]]
    for other in others:
        shelf.sql(
            "UPDATE blobs SET organization_id = :other WHERE version_id = :id", other=new_id(), id=other
        )
    batches: list[set[UUID]] = []
    place = shelf.store.place

    def noticed(blobs: Sequence[Blob]) -> Any:
        batches.append({blob.version_id for blob in blobs})
        return place(blobs)

    monkeypatch.setattr(shelf.store, "place", noticed)
    assert place_staged(shelf.database, shelf.store) == 20
    assert staged[0].version.id in batches[0]
    assert set(others) < batches[0]


def test_finding_some_of_each_organizations_uploads_does_not_read_all_that_wait(database: Database) -> None:
    with database.transaction() as session:
        for organization_id, count in ((new_id(), 10_000), (new_id(), 10)):
            session.execute(
                text(
                    "INSERT INTO blobs (version_id, state, byte_size, organization_id)"
                    " SELECT gen_random_uuid(), 'staged', 1, :id FROM generate_series(1, :count)"
                ),
                {"id": organization_id, "count": count},
            )
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE blobs"))
    plan = explain(database, placement.FAIR, {"each": 20, "limit": 50})
    assert "ix_blobs_staged_by_organization" in plan.indexes
    assert plan.rows_removed == 0
    assert plan.blocks < 200


def test_an_upload_waits_for_its_placement_under_its_organization(shelf: Shelf) -> None:
    first = shelf.upload()
    second = shelf.replace(first)
    owners = [row.organization_id for row in shelf.sql("SELECT DISTINCT organization_id FROM blobs")]
    assert owners == [shelf.caller.organization_id]
    assert shelf.state(second) == "staged"


def test_many_abandoned_uploads_of_one_payer_do_not_delay_anothers(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_expiry, "BATCH_SIZE", 20)
    many, others = new_id(), [new_id() for _ in range(3)]
    for payer, count in [(many, 100), *((other, 1) for other in others)]:
        ago = 3600 if payer == many else 1
        for _ in range(count):
            plant(
                shelf.database,
                resumable_uploads,
                state="Receiving",
                received_bytes=0,
                payer_id=payer,
                expires_at=datetime.now(UTC) - timedelta(seconds=ago),
            )
    with budget(0):
        assert upload_expiry.expire_uploads(shelf.database) == 20
    expired = (
        "SELECT payer_id, count(*) AS ended FROM resumable_uploads WHERE state = 'Expired' GROUP BY payer_id"
    )
    with shelf.database.transaction() as session:
        counts = {row.payer_id: row.ended for row in session.execute(text(expired))}
    assert [counts[at] for at in (many, *others)] == [17, 1, 1, 1]
    assert upload_expiry.expire_uploads(shelf.database) == 83
