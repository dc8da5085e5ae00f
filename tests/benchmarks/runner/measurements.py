"""Take samples in turn, so that other load of the machine affects all contenders alike, and reduce them to medians.

Wall time on a shared machine is noisy. CPU time is less so, and is read from the kernel for every process concerned
and the children that each has waited for.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil

RSS_EVERY_SECONDS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One run of a contender: its seconds, and the CPU seconds of its processes by part."""

    seconds: float
    cpu_by_part: Mapping[str, float] = field(default_factory=dict)

    @property
    def cpu_seconds(self) -> float:
        return sum(self.cpu_by_part.values())


Contender = Callable[[], Sample]


def interleave(rounds: int, contenders: Mapping[str, Contender]) -> dict[str, Sample]:
    """Run every contender once a round, after the disk is idle. Return each one's median."""
    samples: dict[str, list[Sample]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            os.sync()
            samples[name].append(contender())
    return {name: median(taken) for name, taken in samples.items()}


def median(samples: Sequence[Sample]) -> Sample:
    """Reduce the samples of one contender, each figure by itself."""
    parts = {part for sample in samples for part in sample.cpu_by_part}
    return Sample(
        seconds=statistics.median(sample.seconds for sample in samples),
        cpu_by_part={
            part: statistics.median(sample.cpu_by_part.get(part, 0.0) for sample in samples) for part in parts
        },
    )


def percentile(values: Sequence[float], hundredths: int) -> float:
    """Return a percentile of a list of at least a few values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * hundredths // 100)]


class CpuMeter:
    """Reads the CPU seconds of whole process trees, by the part of the service each tree is."""

    def __init__(self, pids: Mapping[str, Sequence[int]], *, own: str | None = None) -> None:
        """Read these process trees. `own` is the part of this process, if it is one."""
        self._pids = pids
        self._own = own

    def run(self, act: Callable[[], float | None]) -> Sample:
        """Time an action. If it returns seconds, those are used."""
        before = self._read()
        started_at = time.perf_counter()
        measured = act()
        seconds = time.perf_counter() - started_at if measured is None else measured
        after = self._read()
        return Sample(
            seconds=seconds, cpu_by_part={part: after[part] - before.get(part, 0.0) for part in after}
        )

    def _read(self) -> dict[str, float]:
        read = {part: sum(map(_tree_cpu_seconds, pids)) for part, pids in self._pids.items()}
        return read if self._own is None else read | {self._own: time.process_time()}


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process tree."""
    process = psutil.Process(pid)
    return sum(each.memory_info().rss for each in (process, *process.children(recursive=True)))


@contextmanager
def peak_resident_bytes(pid: int) -> Iterator[Callable[[], int]]:
    """Watch a process tree within the block. The yielded function returns the highest resident memory."""
    import threading

    peak = resident_bytes(pid)
    ended = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not ended.wait(RSS_EVERY_SECONDS):
            peak = max(peak, resident_bytes(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: peak
    finally:
        ended.set()
        watcher.join()


def _tree_cpu_seconds(pid: int) -> float:
    root = psutil.Process(pid)
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue  # Its parent's account includes it now.
        total += times.user + times.system + times.children_user + times.children_system
    return total
