"""The metrics of all processes of a host. Counting never fails, delays or kills a process.

Each process counts in memory. A thread writes snapshots into a shared directory, and the process that serves
/metrics adds them up. If the directory is full, read-only or missing, the metrics are only out of date. A process
holds a lock on a file of its own while it lives; snapshots of ended processes are folded into one file, so counters
never decrease.
"""

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
import time
from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from uuid import uuid4

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, disable_created_metrics, values
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from shared.observability.metric_families import Families, add, as_metrics, dump, load, load_folded, snapshot
from shared.observability.process_metrics import measure_process

# Keep values in memory: with PROMETHEUS_MULTIPROC_DIR the library would map files, and a full disk kill the
# process.
values.ValueClass = values.MutexValue
disable_created_metrics()  # type: ignore[no-untyped-call]

WRITE_SECONDS = 5.0
DIRECTORY_PREFIX = "quartermaster-metrics-"
ABANDONED_SECONDS = 60.0
FOLDED = "ended.json"
REMEMBERED = 64
"""Names of folded snapshots to keep, for a reader that listed the directory before they were deleted."""

UNWRITTEN = Counter(
    "quartermaster_metrics_unwritten_total",
    "Snapshots of metrics that could not be written; numbers are late.",
)


class LatestGauge(Gauge):
    """A gauge for the whole service: if several processes set it, only the newest value counts."""

    _set_at = 0.0

    def set(self, value: float) -> None:
        """Set the gauge and record the time."""
        super().set(value)
        self._set_at = time.time()

    def _child_samples(self) -> Iterable[Sample]:
        return (Sample("", {}, self._value.get(), self._set_at, None),)


class HostMetrics(Collector):
    """A collector of the metrics of all processes of this host."""

    def __init__(
        self, directory: Path | None, process_type: str, *, registry: CollectorRegistry = REGISTRY
    ) -> None:
        """Create the collector; without a directory it covers this process only."""
        self._directory = directory
        self._role = process_type
        self._registry = registry
        self._name = f"{process_type}.{uuid4().hex}"
        self._alive: int | None = None
        self._written: str | None = None
        self._ended = threading.Event()

    def start(self) -> None:
        """Write snapshots every WRITE_SECONDS and at the end of the process."""
        if self._directory is None:
            return
        threading.Thread(target=self._write_repeatedly, name="metrics", daemon=True).start()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Write a last snapshot and release the lock."""
        if not self._ended.is_set():
            self._ended.set()
            self.write()
            self._release_lock()

    def write(self) -> None:
        """Write a snapshot if any value changed; a failure is counted and retried next time."""
        if self._directory is None:
            return
        try:
            self._live(self._directory)
            text = dump(self._snapshot())
            if text != self._written:
                _write_whole(self._directory / f"{self._name}.json", text)
                self._written = text
        except Exception:  # noqa: BLE001 (no failure of metrics may end the process or the next attempt)
            UNWRITTEN.inc()

    def fold(self) -> None:
        """Fold the snapshots of ended processes into one file, unless another process is doing so."""
        if self._directory is None:
            return
        with contextlib.suppress(OSError), _locked(self._directory / "lock") as is_mine:
            if is_mine:
                self._fold(self._directory)

    def collect(self) -> Iterator[Metric]:
        """Yield the sums over all processes, and the number of live processes by type."""
        total = self._snapshot()
        alive = Tally({self._role: 1})
        for name, families, is_alive in self._others():
            add(total, families, is_alive=is_alive)
            if is_alive:
                alive[name.partition(".")[0]] += 1
        yield from as_metrics(total)
        processes = GaugeMetricFamily("quartermaster_processes", "Processes alive, by role.", labels=["role"])
        for process_type, count in sorted(alive.items()):
            processes.add_metric([process_type], count)
        yield processes

    def _snapshot(self) -> Families:
        return snapshot(chain(self._registry.collect(), measure_process(self._role)))

    def _write_repeatedly(self) -> None:
        self.fold()
        while not self._ended.is_set():
            self.write()
            self._ended.wait(WRITE_SECONDS)

    def _live(self, directory: Path) -> None:
        """Acquire the lock that marks this process as alive."""
        path = directory / f"{self._name}.alive"
        if self._alive is not None and path.exists():
            return
        self._written = None
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Lock the file under a draft name and then rename it, so that no other process sees the file unlocked.
        draft = directory / f"{self._name}.new"
        with contextlib.ExitStack() as on_failure:
            descriptor = os.open(draft, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            on_failure.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            draft.rename(path)
            on_failure.pop_all()
        self._release_lock()
        self._alive = descriptor

    def _release_lock(self) -> None:
        if self._alive is not None:
            os.close(self._alive)
            self._alive = None

    def _others(self) -> Iterator[tuple[str, Families, bool]]:
        """Yield the snapshots of other processes, then the folded one."""
        if self._directory is None:
            return
        names = [name for name in _names(self._directory, "json") if name != self._name]
        # Read single snapshots first and the folded one last: a process that is folded in between is then in at
        # least one of them. The names in the folded snapshot prevent counting a process twice.
        seen = [(name, load(self._directory / f"{name}.json")) for name in names]
        ended, folded = load_folded(self._directory / FOLDED)
        for name, families in seen:
            if families is not None and name not in folded:
                yield name, families, _is_alive(self._directory, name)
        yield FOLDED, ended, False

    def _fold(self, directory: Path) -> None:
        ended, folded = load_folded(directory / FOLDED)
        names = dict.fromkeys((*_names(directory, "json"), *_names(directory, "alive")))
        gone = [name for name in names if name != self._name and not _is_alive(directory, name)]
        new = [name for name in gone if name not in folded]
        for name in new:
            add(ended, load(directory / f"{name}.json") or {}, is_alive=False)
        if new:
            remembered = [*folded, *new][-max(REMEMBERED, len(gone)) :]
            # Write the folded file before the single files are deleted: after a crash in between, the names in the
            # folded file prevent counting a process twice.
            _write_whole(directory / FOLDED, dump(ended, folded=remembered))
        for name in gone:
            for suffix in ("json", "alive", "new"):
                (directory / f"{name}.{suffix}").unlink(missing_ok=True)


def make_directory(place: Path) -> Path:
    """Create a directory for one host's processes, and delete abandoned ones without a live process."""
    for left in place.glob(f"{DIRECTORY_PREFIX}*"):
        with contextlib.suppress(OSError):
            # Keep a new directory, which may not have its first lock yet.
            is_settled = left.stat().st_mtime < time.time() - ABANDONED_SECONDS
            if is_settled and not any(_is_alive(left, name) for name in _names(left, "alive")):
                shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=DIRECTORY_PREFIX, dir=place))


def _names(directory: Path, suffix: str) -> list[str]:
    """Return the processes that left a file with this suffix; none if the directory cannot be read."""
    with contextlib.suppress(OSError):
        return [path.stem for path in directory.glob(f"*.*.{suffix}")]
    return []


def _is_alive(directory: Path, name: str) -> bool:
    """Return whether a process with this name holds its lock."""
    try:
        descriptor = os.open(directory / f"{name}.alive", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _write_whole(path: Path, text: str) -> None:
    """Replace a file atomically, or leave it unchanged."""
    # A reader must never see half a file; rename() replaces it atomically.
    draft = path.with_suffix(".new")
    try:
        draft.write_text(text)
        draft.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Try to take a lock for a block; yield whether it was free."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_free = True
    except OSError:
        is_free = False
    try:
        yield is_free
    finally:
        os.close(descriptor)
