"""Measure this process's CPU time, memory, threads and open files from the kernel, whenever metrics are read."""

import os
import resource
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

PREFIX = "quartermaster_process_"
_PAGE_BYTES = resource.getpagesize()
_RESIDENT_PAGES = 1  # of /proc/self/statm


def measure_process(role: str) -> Iterator[Metric]:
    """Yield the figures of this process. Omit figures that the operating system does not provide."""
    # Unlike the other figures, available on every Unix.
    usage = resource.getrusage(resource.RUSAGE_SELF)
    seconds = CounterMetricFamily(f"{PREFIX}cpu_seconds", "CPU time used, by role.", labels=["role"])
    seconds.add_metric([role], usage.ru_utime + usage.ru_stime)
    yield seconds
    try:
        figures = {
            "resident_memory_bytes": (_resident_bytes(), "Memory in use, by role."),
            "open_files": (_count("/proc/self/fd"), "Open files and connections, by role."),
            "threads": (_count("/proc/self/task"), "Threads, by role."),
        }
    except OSError:  # no /proc, or no file descriptor left to open it
        return
    for name, (value, meaning) in figures.items():
        gauge = GaugeMetricFamily(PREFIX + name, meaning, labels=["role"])
        gauge.add_metric([role], value)
        yield gauge


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 (read every two seconds)
        return int(file.read().split()[_RESIDENT_PAGES]) * _PAGE_BYTES


def _count(directory: str) -> int:
    return len(os.listdir(directory))  # noqa: PTH208 (read every two seconds)
