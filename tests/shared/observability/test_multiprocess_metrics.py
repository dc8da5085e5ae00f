"""Numbers of several processes: they add up, outlive their processes, and fail nothing when the disk does."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from shared.observability.multiprocess_metrics import (
    ABANDONED_SECONDS,
    HostMetrics,
    LatestGauge,
    make_directory,
)


class Process:
    """What one process would count, with a registry of its own."""

    def __init__(self, directory: Path | None, role: str = "web") -> None:
        self.registry = CollectorRegistry()
        self.count = Counter("quartermaster_things_total", "Things.", ["kind"], registry=self.registry)
        self.seconds = Histogram("quartermaster_seconds", "Time.", buckets=(1.0, 2.0), registry=self.registry)
        self.busy = Gauge("quartermaster_busy", "Busy.", registry=self.registry)
        self.wrong = LatestGauge("quartermaster_wrong", "Wrong.", ["kind"], registry=self.registry)
        Counter("python_things_total", "Of no interest.", registry=self.registry).inc()
        self.metrics = HostMetrics(directory, role, registry=self.registry)

    def text(self) -> str:
        return generate_latest(self.metrics).decode()

    def end(self) -> None:
        self.metrics.stop()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "metrics"


def test_counts_and_durations_of_all_processes_are_added_up(directory: Path) -> None:
    mine, other = Process(directory), Process(directory, "worker-files")
    for process in (mine, other):
        process.count.labels("a").inc(2)
        process.seconds.observe(1.5)
        process.busy.set(3)
    other.metrics.write()
    text = mine.text()
    assert 'quartermaster_things_total{kind="a"} 4.0' in text
    assert 'quartermaster_seconds_bucket{le="1.0"} 0.0' in text
    assert 'quartermaster_seconds_bucket{le="2.0"} 2.0' in text
    assert "quartermaster_seconds_sum 3.0" in text
    assert "quartermaster_busy 6.0" in text
    assert 'quartermaster_processes{role="web"} 1.0' in text
    assert 'quartermaster_processes{role="worker-files"} 1.0' in text
    assert "python_things" not in text


def test_counts_of_processes_that_ended_are_kept_and_their_gauges_are_not(directory: Path) -> None:
    for _ in range(3):
        ended = Process(directory, "worker-files")
        ended.count.labels("a").inc(2)
        ended.busy.set(5)
        ended.end()
    mine = Process(directory)
    assert 'quartermaster_things_total{kind="a"} 6.0' in mine.text()
    mine.metrics.fold()
    mine.metrics.fold()
    text = mine.text()
    assert 'quartermaster_things_total{kind="a"} 6.0' in text
    assert "quartermaster_busy 0.0" in text
    assert 'quartermaster_processes{role="worker-files"}' not in text
    assert 'memory_bytes{role="worker-files"}' not in text
    assert sorted(path.name for path in directory.iterdir()) == ["ended.json", "lock"]


def test_a_reader_counts_nothing_twice_that_is_being_folded(directory: Path) -> None:
    ended, mine = Process(directory), Process(directory)
    ended.count.labels("a").inc()
    ended.end()
    left = {path: path.read_bytes() for path in directory.iterdir()}
    mine.metrics.fold()
    for (
        path,
        content,
    ) in left.items():  # as a process killed between writing the sum and removing its parts leaves it
        path.write_bytes(content)
    assert 'quartermaster_things_total{kind="a"} 1.0' in mine.text()
    mine.metrics.fold()
    assert 'quartermaster_things_total{kind="a"} 1.0' in mine.text()


def test_of_gauges_that_speak_for_the_service_the_latest_is_believed(directory: Path) -> None:
    first, second = Process(directory), Process(directory)
    second.wrong.labels("balance").set(0)
    first.wrong.labels("balance").set(7)
    second.wrong.labels("balance").set(0)
    for process in (first, second):
        process.metrics.write()
        assert process.wrong.labels("balance") is process.wrong.labels("balance")
    assert 'quartermaster_wrong{kind="balance"} 0.0' in first.text()
    first.wrong.labels("balance").set(2)
    first.end()
    assert 'quartermaster_wrong{kind="balance"} 2.0' in second.text()


def test_a_killed_process_keeps_what_it_had_counted(directory: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; "
        "from shared.observability import multiprocess_metrics as metrics, telemetry;"
        "metrics.WRITE_SECONDS = 0.01; telemetry.UPLOADED_BYTES.inc(17);"
        "metrics.HostMetrics(Path(sys.argv[1]), 'worker-files').start(); time.sleep(60)"
    )
    mine = Process(directory)
    with subprocess.Popen([sys.executable, "-c", code, str(directory)]) as process:
        while "quartermaster_uploaded_bytes_total 17.0" not in (text := mine.text()):
            assert process.poll() is None
        assert 'quartermaster_processes{role="worker-files"} 1.0' in text
        process.send_signal(signal.SIGKILL)
        process.wait()
    text = mine.text()
    assert "quartermaster_uploaded_bytes_total 17.0" in text
    assert 'quartermaster_processes{role="worker-files"}' not in text


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of which nothing is left."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small disk cannot be mounted here")
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while file.write(b"x" * 65536):
            pass
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_full_disk_fails_nothing_and_numbers_are_shared_again_with_space(full_disk: Path) -> None:
    """Counting into files mapped from such a disk ends a process with SIGBUS."""
    code = (
        "import sys; from pathlib import Path; "
        "from shared.observability import multiprocess_metrics as metrics, telemetry;"
        "shared = metrics.HostMetrics(Path(sys.argv[1]), 'web');"
        "[telemetry.HTTP_REQUESTS.labels('GET', f'/{n}', '200').inc() for n in range(2000)];"
        "shared.write(); telemetry.UPLOADED_BYTES.inc(17); shared.write();"
        "Path(sys.argv[2]).unlink(); shared.write();"
        "[telemetry.HTTP_SECONDS.labels('GET', f'/{n}').observe(1) for n in range(9)]"
    )
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(full_disk)}
    command = [sys.executable, "-c", code, str(full_disk / "metrics"), str(full_disk / "filler")]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    (snapshot,) = (full_disk / "metrics").glob("*.json")
    assert list(full_disk.glob("*.db")) == []
    written = json.loads(snapshot.read_text())["families"]
    assert written["quartermaster_uploaded_bytes"][2][0][2] == 17.0
    assert written["quartermaster_metrics_unwritten"][2][0][2] >= 1.0


def test_without_a_directory_there_are_the_processs_own_numbers() -> None:
    mine = Process(None)
    mine.count.labels("a").inc()
    mine.metrics.start()
    mine.metrics.write()
    mine.metrics.fold()
    assert 'quartermaster_things_total{kind="a"} 1.0' in mine.text()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"families": 1}', '{"families": {"x": []}}', "null"])
def test_a_damaged_snapshot_is_passed_over(directory: Path, content: str) -> None:
    mine = Process(directory)
    mine.metrics.write()
    (directory / "web.other.json").write_text(content)
    (directory / "ended.json").write_text(content)
    mine.count.labels("a").inc()
    assert 'quartermaster_things_total{kind="a"} 1.0' in mine.text()
    mine.metrics.fold()
    assert not (directory / "web.other.json").exists()


def test_a_directory_that_was_removed_is_made_again(directory: Path) -> None:
    mine, other = Process(directory), Process(directory)
    mine.count.labels("a").inc()
    mine.metrics.write()
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
    mine.metrics.write()
    assert 'quartermaster_things_total{kind="a"} 1.0' in other.text()
    assert 'quartermaster_processes{role="web"} 2.0' in other.text()


def test_directories_of_killed_stacks_are_removed_and_others_are_not(tmp_path: Path) -> None:
    abandoned, used, new = (make_directory(tmp_path) for _ in range(3))
    Process(abandoned).end()
    mine = Process(used)
    mine.metrics.write()
    for directory in (abandoned, used):
        os.utime(directory, times=(time.time() - 2 * ABANDONED_SECONDS,) * 2)
    made = make_directory(tmp_path)
    assert set(tmp_path.iterdir()) == {used, new, made}
