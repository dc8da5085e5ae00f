"""The files domain without the web: a database, a blob store of each kind, and writes as a web process makes them."""

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import insert, text

from shared.db.database import Database
from shared.files.blobs import S3Access
from shared.files.blobs.base import BlobStore
from shared.files.blobs.paired import PairedBlobStore
from shared.files.deletion import delete
from shared.files.lifecycle.expiry import expire_due
from shared.files.lifecycle.garbage_collection import collect_garbage
from shared.files.lifecycle.placement import place_staged
from shared.files.maintenance.store_migration import MigrationResult, move
from shared.files.replaces import ReplaceRequest, replace
from shared.files.resources import Receipt, ReceivedContent
from shared.files.staging import Receive, Sink
from shared.files.sweeps import sweep_staging
from shared.files.uploads import UploadRequest, upload
from shared.identity.access.authorization import Actor
from shared.identity.access.callers import Caller, Executor, ExecutorKind, Owner, OwnerKind
from shared.identity.access.permissions import FILE_PERMISSIONS
from shared.identity.tables import organizations
from tests.contracts.blob_stores import Bench, LocalBench, S3Bench
from tests.support.processes.simulated_deaths import die_once

_BUCKET = "content"


@dataclass(kw_only=True)
class Shelf:
    """One owner's files in one store."""

    database: Database
    bench: Bench
    caller: Caller
    patch: pytest.MonkeyPatch = field(repr=False)

    @property
    def store(self) -> BlobStore:
        return self.bench.store

    def upload(
        self,
        content: bytes = b"content",
        *,
        operation_id: UUID | None = None,
        until: datetime | None = None,
        receive: Receive | None = None,
    ) -> Receipt:
        request = UploadRequest(
            operation_id=operation_id or uuid4(),
            organization_id=None,
            byte_size=len(content),
            retention_expires_at=until,
            association=None,
            time_limit_seconds=60,
        )
        return upload(self.database, self.store, self.caller, request, receive or receiving(content))

    def replace(self, file: Receipt, content: bytes = b"newer") -> Receipt:
        request = ReplaceRequest(
            operation_id=uuid4(),
            file_id=file.version.file_id,
            expected_version_id=file.version.id,
            expected_revision=file.version.revision,
            byte_size=len(content),
            time_limit_seconds=60,
        )
        return replace(self.database, self.store, Actor(caller=self.caller), request, receiving(content))

    def delete(self, file: Receipt) -> None:
        delete(self.database, Actor(caller=self.caller), file.version.file_id, uuid4())

    def placed(self, content: bytes = b"content") -> Receipt:
        file = self.upload(content)
        place_staged(self.database, self.store)
        return file

    def expire(self, *files: Receipt) -> None:
        """Move the deadlines of files into the past."""
        for file in files:
            self.sql(
                "UPDATE files SET retention_expires_at = now() - interval '1 ms' WHERE id = :id",
                id=file.version.file_id,
            )

    def sql(self, statement: str, **values: object) -> Any:
        with self.database.autocommit() as session:
            result = session.execute(text(statement), values)
            return result.all() if result.returns_rows else []

    def state(self, file: Receipt) -> str | None:
        rows = self.sql("SELECT state FROM blobs WHERE version_id = :id", id=file.version.id)
        return rows[0].state if rows else None

    def read(self, file: Receipt) -> bytes:
        with self.store.open(file.version.id, placed=self.state(file) == "live") as reader:
            return b"".join(reader.chunks(0, file.version.byte_size))

    def dies_at(self, point: str) -> None:
        """Make the first process that reaches this fault point crash there."""
        die_once(self.patch, point)

    def expire_leases(self) -> None:
        self.sql("UPDATE blobs SET lease_until = now() - interval '1 ms' WHERE lease_until IS NOT NULL")

    def work(self) -> None:
        """Run each job as the schedule does, until none finds work."""
        for _ in range(2):
            self.expire_leases()
            for job in (expire_due, place_staged, sweep_staging, collect_garbage):
                job(self.database, self.store)

    def require_tidy(self) -> None:
        """Fail unless rows and store hold exactly the versions of the files that have not ended."""
        kept = self.sql(
            "SELECT v.id FROM file_versions v JOIN files f ON f.id = v.file_id WHERE f.state = 'Available'"
        )
        rows = self.sql("SELECT version_id, state FROM blobs")
        ids = {str(row.id) for row in kept}
        assert {str(row.version_id) for row in rows} == ids
        assert {row.state for row in rows} <= {"live"}
        assert {Path(name).name for name in self.bench.leftovers()} == ids


def receiving(content: bytes) -> Receive:
    """Return a function that receives this content in two pieces, as a body's."""

    def receive(sink: Sink) -> ReceivedContent:
        sink.open()
        sink.write(content[:3])
        sink.write(content[3:])
        return ReceivedContent(
            file_name="a.txt",
            media_type="text/plain",
            byte_size=len(content),
            sha256=hashlib.sha256(content).digest(),
        )

    return receive


def caller_with_everything(database: Database) -> Caller:
    """Return a deployment of a new organization with all permissions on its daemon's files."""
    organization_id, daemon_id = uuid4(), uuid4()
    with database.transaction() as session:
        session.execute(insert(organizations).values(id=organization_id, name="files"))
    return Caller(
        executor=Executor(kind=ExecutorKind.DAEMON_IDENTITY, id=daemon_id),
        credential_id=uuid4(),
        organization_id=organization_id,
        owner=Owner(kind=OwnerKind.DAEMON_IDENTITY, id=daemon_id, organization_id=organization_id),
        payer_id=organization_id,
        permissions_by_scope={organization_id: FILE_PERMISSIONS},
    )


@pytest.fixture(scope="session")
def bucket(moto: S3Access) -> S3Bench:
    """Share one bucket: opening a store costs more than all requests of a test."""
    return S3Bench(f"s3://{_BUCKET}/files", moto)


def empty(bench: S3Bench) -> None:
    """Delete what a failed test has left."""
    for found in bench.client.list_multipart_uploads(Bucket=_BUCKET).get("Uploads", ()):
        bench.client.abort_multipart_upload(Bucket=_BUCKET, Key=found["Key"], UploadId=found["UploadId"])
    for kept in bench.client.list_objects_v2(Bucket=_BUCKET).get("Contents", ()):
        bench.client.delete_object(Bucket=_BUCKET, Key=kept["Key"])


@pytest.fixture(params=["local", "s3"])
def shelf(
    request: pytest.FixtureRequest, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Shelf:
    """A shelf in an empty database, over each kind of store."""
    bench: Bench
    if request.param == "local":
        bench = LocalBench(tmp_path)
    else:
        bucket: S3Bench = request.getfixturevalue("bucket")
        empty(bucket)
        bench = bucket
    shelf = Shelf(database=database, bench=bench, caller=caller_with_everything(database), patch=monkeypatch)
    shelf.sql("DELETE FROM blobs; DELETE FROM file_references; DELETE FROM file_versions; DELETE FROM files")
    shelf.sql("DELETE FROM file_operations; DELETE FROM read_grants; DELETE FROM ended_content")
    return shelf


@dataclass
class PairBench:
    """Two stores; content moves from the second to the first."""

    first: Bench
    second: Bench

    def __post_init__(self) -> None:
        self.url, self.s3 = self.first.url, self.first.s3
        self.store = PairedBlobStore(self.first.store, self.second.store)

    def leftovers(self) -> set[str]:
        return self.first.leftovers()

    def tamper(self, version_id: UUID) -> None:
        self.second.tamper(version_id)


@dataclass
class Move:
    """A shelf with content in the second store, and the versions stored there."""

    shelf: Shelf
    pair: PairBench

    def run(self) -> MigrationResult:
        return move(self.shelf.database, self.pair.store)

    def use(self, bench: Bench) -> None:
        """Make writes and jobs use these stores from now on."""
        self.shelf.bench = bench

    def is_moved(self, *files: Receipt) -> bool:
        """Return whether the first store alone has these versions."""
        self.use(self.pair.first)
        return all(self.shelf.read(file) for file in files)


@pytest.fixture(params=["to S3", "to a disk"])
def moving(
    request: pytest.FixtureRequest,
    bucket: S3Bench,
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Move:
    empty(bucket)
    local = LocalBench(tmp_path / "blobs")
    pair = PairBench(bucket, local) if request.param == "to S3" else PairBench(local, bucket)
    shelf = Shelf(
        database=database,
        bench=pair.second,
        caller=caller_with_everything(database),
        patch=monkeypatch,
    )
    for table in ("blobs", "file_references", "file_versions", "files", "file_operations", "read_grants"):
        shelf.sql(f"DELETE FROM {table}")
    return Move(shelf, pair)
