"""A trial of the local store's protocol: workers that do everything concurrently, killed and paused at random.

python -m tests.contracts.crash_trial <directory> <seconds> <seed> [variant]

The parent forks workers, kills or pauses one every few milliseconds and forks another. As in the product, rows that
are changed by transactions are the truth (SQLite here, which survives a kill without a server). At the end the parent
does once what jobs and sweeps would do, and compares the store with the rows: every committed blob must read back,
every byte on disk must have a row. It prints its counts and every violation as one line of JSON.

The variants are deliberate defects, to show that the trial detects them: `object-first` removes the object before the
staged name, `unlocked` sweeps without locks, `rows-first` deletes rows before bytes.
"""

import contextlib
import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from shared.files.blobs.base import Blob, BlobMissing
from shared.files.blobs.directory import LocalDirectory
from shared.files.blobs.local import LocalBlobStore
from shared.ids import new_id

WORKERS = 4
PIECES = 8
PIECE_BYTES = 1500


class RemovesObjectsFirst(LocalBlobStore):
    """A deliberate defect: a placement may run between the two unlinks."""

    def _unlink(self, at: LocalDirectory, blob: Blob) -> None:
        for path in (at.object_path(blob.version_id), at.staging_path(blob.version_id)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108
            time.sleep(random.random() * 0.002)


class Trial:
    """The actions of one worker. A kill may end each of them."""

    def __init__(self, directory: Path, seed: int, variant: str) -> None:
        """Open the store and the rows."""
        self.store = (RemovesObjectsFirst if variant == "object-first" else LocalBlobStore)(
            directory / "blobs"
        )
        self.variant = variant
        self.staging = directory / "blobs" / "staging"
        self.rows = sqlite3.connect(directory / "rows", timeout=30, isolation_level=None)
        self.rows.execute("PRAGMA synchronous = OFF")
        self.violations = directory / "violations"
        self.random = random.Random(seed)

    def work(self) -> None:
        """Run random actions forever."""
        steps = [self.upload] * 8 + [self.place] * 2 + [self.doom, self.collect] * 2 + [self.sweep, self.read]
        while True:
            self.random.choice(steps)()

    def upload(self) -> None:
        """Receive, seal, commit and release a blob; sometimes discard it instead."""
        version_id = new_id()
        size_bytes = len(content_of(version_id))
        receiver = self.store.receive(version_id, size_bytes=size_bytes)
        for start in range(0, size_bytes, PIECE_BYTES):
            receiver.write(content_of(version_id)[start : start + PIECE_BYTES])
        blob = receiver.seal()
        if self.random.random() < 0.1:
            receiver.discard()
            return
        self.rows.execute(
            "INSERT INTO blobs (version_id, size_bytes, state) VALUES (?, ?, 'staged')",
            (str(version_id), blob.size_bytes),
        )
        receiver.release()

    def place(self) -> None:
        """Place blobs without a lease, so that workers collide."""
        blobs = self.find("staged", 5)
        time.sleep(self.random.random() * 0.01)
        failures = self.store.place(blobs)
        for blob in blobs:
            if blob.version_id not in failures:
                self.rows.execute(
                    "UPDATE blobs SET state = 'live' WHERE version_id = ? AND state = 'staged'",
                    (str(blob.version_id),),
                )

    def doom(self) -> None:
        """Mark a few blobs for deletion, often while another worker is about to place them."""
        for blob in self.find("live", 1) + self.find("staged", 2):
            self.rows.execute(
                "UPDATE blobs SET state = 'doomed' WHERE version_id = ?", (str(blob.version_id),)
            )

    def collect(self) -> None:
        """Remove blobs that are marked for deletion, then their rows."""
        blobs = self.find("doomed", 10)
        if self.variant == "rows-first":
            self.forget(blobs)
        failures = self.store.remove(blobs)
        self.forget([blob for blob in blobs if blob.version_id not in failures])

    def forget(self, blobs: list[Blob]) -> None:
        """Delete rows."""
        for blob in blobs:
            self.rows.execute("DELETE FROM blobs WHERE version_id = ?", (str(blob.version_id),))

    def sweep(self) -> None:
        """Discard staged bytes without a row."""
        if self.variant == "unlocked":
            for path in list(self.staging.iterdir()):
                if self.state(UUID(path.name)) is None:
                    path.unlink(missing_ok=True)
            return
        for batch in self.store.list_unlocked(batch_size=7):
            for found in batch:
                if self.state(found.version_id) is None:
                    found.discard()

    def read(self) -> None:
        """Read committed blobs. A missing blob is a violation unless it was marked for deletion meanwhile."""
        for state in ("staged", "live"):
            for blob in self.find(state, 3):
                self.check(blob, placed=state == "live")

    def check(self, blob: Blob, *, placed: bool) -> None:
        """Read one blob and record a violation."""
        try:
            with self.store.open(blob.version_id, placed=placed) as reader:
                found = b"".join(reader.chunks(0, blob.size_bytes))
        except BlobMissing:
            if self.state(blob.version_id) in {"staged", "live"}:
                self.note(f"lost {blob.version_id}")
            return
        if found != content_of(blob.version_id):
            self.note(f"corrupt {blob.version_id}")

    def state(self, version_id: UUID) -> str | None:
        """Return a blob's state."""
        row = self.rows.execute("SELECT state FROM blobs WHERE version_id = ?", (str(version_id),)).fetchone()
        return None if row is None else str(row[0])

    def find(self, state: str, limit: int) -> list[Blob]:
        """Return some blobs in a state."""
        rows = self.rows.execute(
            "SELECT version_id, size_bytes FROM blobs WHERE state = ? ORDER BY random() LIMIT ?",
            (state, limit),
        )
        return [Blob(version_id=UUID(version_id), size_bytes=size_bytes) for version_id, size_bytes in rows]

    def note(self, violation: str) -> None:
        """Record a violation for the parent."""
        with self.violations.open("a") as file:
            file.write(violation + "\n")

    def settle(self) -> dict[str, int]:
        """Do once what jobs and sweeps would do, and compare the store with the rows."""
        while blobs := self.find("doomed", 1000):
            if self.store.remove(blobs):
                self.note("a removal failed")
            self.forget(blobs)
        self.sweep()
        for failed in self.store.place(self.find("staged", 1_000_000)):
            self.note(f"not placeable {failed}")
        kept = self.find("live", 1_000_000) + self.find("staged", 1_000_000)
        for blob in kept:
            self.check(blob, placed=True)
        on_disk = {path.name for path in self.staging.parent.rglob("*") if path.is_file()}
        for name in on_disk - {str(blob.version_id) for blob in kept}:
            self.note(f"leaked {name}")
        return {"kept": len(kept), "on_disk": len(on_disk)}


def content_of(version_id: UUID) -> bytes:
    """Return content with a size and bytes that only this version has."""
    return version_id.bytes * ((version_id.int >> 8) % (PIECES * PIECE_BYTES // 16))


def run(directory: Path, seconds: float, seed: int, variant: str = "") -> dict[str, object]:
    """Kill workers during this time, then settle. Return the counts."""
    chance = random.Random(seed)
    rows = sqlite3.connect(directory / "rows", isolation_level=None)
    # Before any fork: changing the journal mode needs the file alone, and SQLite does not wait for that.
    rows.execute("PRAGMA journal_mode = WAL")
    rows.execute("CREATE TABLE blobs (version_id TEXT PRIMARY KEY, size_bytes INTEGER, state TEXT)")
    rows.close()
    LocalBlobStore(directory / "blobs")
    kills = 0
    workers = [_fork(directory, chance.random(), variant) for _ in range(WORKERS)]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(chance.random() * 0.03)
        victim = chance.randrange(WORKERS)
        with _perhaps_paused(workers[chance.randrange(WORKERS)], chance):
            _kill(workers[victim])
            kills += 1
        workers[victim] = _fork(directory, chance.random(), variant)
    for worker in workers:
        _kill(worker)
    trial = Trial(directory, seed, "")
    tally = trial.settle()
    found = trial.violations.read_text().split("\n")[:-1] if trial.violations.exists() else []
    return {"kills": kills, **tally, "violations": sorted(found)}


def _fork(directory: Path, seed: float, variant: str) -> int:
    worker = os.fork()
    if worker == 0:
        try:
            Trial(directory, hash(seed), variant).work()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is a finding
            with (directory / "violations").open("a") as file:
                file.write(f"{error!r}\n")
        finally:
            os._exit(1)
    return worker


def _kill(worker: int) -> None:
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)


@contextlib.contextmanager
def _perhaps_paused(worker: int, chance: random.Random) -> Iterator[None]:
    """Stop a worker now and then, as a zombie that continues after others have done its work."""
    if chance.random() > 0.2:
        yield
        return
    os.kill(worker, signal.SIGSTOP)
    time.sleep(chance.random() * 0.1)
    yield
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker, signal.SIGCONT)


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])))
