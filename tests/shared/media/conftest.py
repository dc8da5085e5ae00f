"""The media domain without the web: a database, a store, a source of media, and a worker that can die anywhere."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from shared.db.database import Database
from shared.egress.policy import EgressPolicy
from shared.encryption import Encryption
from shared.fairness.admission import Pool
from shared.files.blobs import open_blob_store
from shared.files.blobs.base import BlobStore
from shared.files.lifecycle.garbage_collection import collect_garbage
from shared.files.lifecycle.placement import place_staged
from shared.files.sweeps import sweep_staging
from shared.identity.directory.deployments import CreatedDeployment
from shared.identity.directory.distributions import CreatedDistribution
from shared.media.attachments import Attachment
from shared.media.importing.fetch_job import Fetcher, fetch_due
from shared.media.importing.import_queue import queue_imports
from shared.media.importing.imports import STANDARD, Import, get_import
from tests.support.data.identity import IdentityFactory, make_settings
from tests.support.data.media_samples import PNG, Sample
from tests.support.data.media_sources import MediaSource
from tests.support.processes.simulated_deaths import die_once


@dataclass(frozen=True, kw_only=True)
class Mailbox:
    """A distribution, and whom it belongs to."""

    organization_id: UUID
    principal_id: UUID
    deployment: CreatedDeployment
    created: CreatedDistribution

    @property
    def id(self) -> UUID:
        return self.created.distribution.id


@dataclass(kw_only=True)
class Desk:
    """One worker and whom it works for."""

    database: Database
    store: BlobStore
    fetcher: Fetcher
    source: MediaSource
    patch: pytest.MonkeyPatch = field(repr=False)

    def mailbox(self) -> Mailbox:
        """A distribution of an organization of its own."""
        return make_mailbox(self.database)

    def mailbox_beside(self, other: Mailbox) -> Mailbox:
        """Another distribution of the same organization and receiver."""
        created = IdentityFactory(self.database, make_settings()).distribution(
            other.organization_id,
            principal_id=other.principal_id,
            deployment_id=other.deployment.deployment.id,
        )
        return replace(other, created=created)

    def push(
        self,
        mailbox: Mailbox,
        *attachments: Attachment,
        headers: Mapping[str, Mapping[str, str]] | None = None,
        network: str = STANDARD,
    ) -> tuple[Import, ...]:
        with self.database.transaction() as session:
            return queue_imports(
                session,
                self.fetcher.settings,
                distribution_id=mailbox.id,
                network=network,
                attachments=attachments,
                secret_headers=headers,
            )

    def work(self) -> int:
        """Run due fetches, as the worker does."""
        return fetch_due(self.fetcher)

    def work_until_idle(self) -> None:
        """Fetch, letting every pause and lease pass, until nothing waits."""
        while self.sql("SELECT 1 FROM media_imports WHERE state IN ('Queued', 'Fetching')"):
            self.let_time_pass()
            self.work()

    def let_time_pass(self) -> None:
        self.sql("UPDATE media_imports SET due_at = now() WHERE state IN ('Queued', 'Fetching')")
        self.sql("UPDATE blobs SET lease_until = now() - interval '1 ms' WHERE lease_until IS NOT NULL")

    def read(self, queued: Import) -> Import:
        with self.database.autocommit() as session:
            return get_import(session, distribution_id=queued.distribution_id, import_id=queued.id)

    def files_of(self, mailbox: Mailbox) -> list[Any]:
        return self.sql(
            "SELECT f.*, v.file_name, v.media_type, v.byte_size, v.content_sha256 FROM files f"
            " JOIN file_versions v ON v.id = f.current_version_id WHERE f.owner_id = :owner",
            owner=mailbox.principal_id,
        )

    def content_of(self, stored: Import) -> bytes:
        assert stored.version_id is not None
        place_staged(self.database, self.store)
        (row,) = self.sql("SELECT byte_size FROM blobs WHERE version_id = :id", id=stored.version_id)
        with self.store.open(stored.version_id, placed=True) as reader:
            return b"".join(reader.chunks(0, row.byte_size))

    def sql(self, statement: str, **values: object) -> list[Any]:
        with self.database.autocommit() as session:
            result = session.execute(text(statement), values)
            return list(result.all()) if result.returns_rows else []

    def dies_at(self, point: str) -> list[str]:
        """Kill the first process that reaches this point; return a list that then contains the point."""
        return die_once(self.patch, point)

    def require_tidy(self) -> None:
        """Sweep as the schedule does, then check that no unexpected bytes or rows are left."""
        for _ in range(2):
            self.let_time_pass()
            place_staged(self.database, self.store)
            sweep_staging(self.database, self.store)
            self.let_time_pass()
            collect_garbage(self.database, self.store)
        assert self.sql("SELECT * FROM blobs WHERE state <> 'live'") == []
        stray = "SELECT * FROM blobs b WHERE NOT EXISTS (SELECT FROM media_imports i WHERE i.version_id = b.version_id)"
        assert self.sql(stray) == []


@pytest.fixture(scope="module")
def source() -> Iterator[MediaSource]:
    with MediaSource() as source:
        yield source


@pytest.fixture(scope="module")
def mailbox(database: Database) -> Mailbox:
    """The distribution of tests that change nothing about it."""
    return make_mailbox(database)


@pytest.fixture
def desk(
    database: Database, source: MediaSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    store = open_blob_store((tmp_path / "blobs").as_uri())
    desk = make_desk(database, store, source, monkeypatch)
    yield desk
    monkeypatch.undo()
    # The next test of this module has a store of its own.
    for table in ("media_imports", "expiring_media", "blobs", "file_versions", "files"):
        desk.sql(f"DELETE FROM {table}")


def make_desk(
    database: Database, store: BlobStore, source: MediaSource, patch: pytest.MonkeyPatch, **changes: object
) -> Desk:
    settings = make_settings(**{"max_media_bytes": 1 << 20, "media_fetch_seconds": 20.0, **changes})
    fetcher = Fetcher(
        database=database,
        store=store,
        settings=settings,
        encryption=Encryption(settings),
        policy=EgressPolicy(allow_private=True, allow_http=True),
        pool=Pool("fetches", 16),
    )
    return Desk(
        database=database,
        store=store,
        fetcher=fetcher,
        source=source,
        patch=patch,
    )


def make_mailbox(database: Database) -> Mailbox:
    """A distribution of an organization of its own."""
    identity = IdentityFactory(database, make_settings())
    organization_id = identity.organization().id
    deployment = identity.deployment(organization_id)
    principal_id = identity.principal(organization_id).id
    created = identity.distribution(
        organization_id, principal_id=principal_id, deployment_id=deployment.deployment.id
    )
    return Mailbox(
        organization_id=organization_id, principal_id=principal_id, deployment=deployment, created=created
    )


def attachment(url: str, sample: Sample = PNG, **changes: Any) -> Attachment:
    """An attachment at a URL, of a message of its own."""
    made = Attachment(
        message_id=uuid4().hex,
        attachment_id="a-1",
        location={"url": url},
        file_name=sample.file_name,
        media_type=sample.media_type,
    )
    return replace(made, **changes)
