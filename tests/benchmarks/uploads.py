"""Rows about uploads: large and many small ones, their memory, and the time until response and placement."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg2

from shared.files.lifecycle.placement import PlaceStaged
from tests.benchmarks.clients import Connection, request_head, run_clients
from tests.benchmarks.peers import bare_operations
from tests.benchmarks.runner.measurements import (
    Contender,
    CpuMeter,
    Sample,
    interleave,
    peak_resident_bytes,
    percentile,
    resident_bytes,
)
from tests.benchmarks.runner.product import Bench, Front, warm_up
from tests.benchmarks.runner.report import Line, at_least, cpu_per, milliseconds, missing

MEBIBYTE, GIBIBYTE = 1 << 20, 1 << 30
CLIENTS = 16
SMALL_UPLOAD_MILLISECONDS = 2.2
_RATIOS = {"nginx": 0.5, "copyparty": 1.5, "rclone": 2.0}


def large_uploads(bench: Bench) -> Iterator[Line]:
    """One large upload at a time, compared with servers that neither hash nor flush."""
    size = bench.scaled(GIBIBYTE, 128 * MEBIBYTE)
    content = bench.content_file(size)
    contenders: dict[str, Contender] = {"ours": lambda: _upload(bench, content)}
    nginx = bench.nginx
    if nginx is not None:
        dav = nginx.directory / "dav"
        contenders["nginx"] = lambda: _put(nginx.port, nginx.pid, "/dav/content", content, dav / "content")
    for name, server in bench.file_servers.items():
        stored = bench.directory / name / "content"
        contenders[name] = lambda server=server, stored=stored: _put(  # type: ignore[misc]
            server.port or 0, server.pid, "/content", content, stored
        )
    warm_up(bench.front)
    taken = interleave(bench.scaled(5, 3), contenders)
    ours = taken.pop("ours")
    what = f"upload of {size // MEBIBYTE} MiB"
    for name, minimum in _RATIOS.items():
        if name not in taken:
            yield missing(what, name, _rate(size, ours))
            continue
        yield at_least(
            what,
            _rate(size, ours),
            f"{name} {_rate(size, taken[name])}, {taken[name].cpu_seconds:.2f} CPU s",
            ratio=taken[name].seconds / ours.seconds,
            minimum=minimum,
            cpu=cpu_per(ours, size / GIBIBYTE, "GiB") if name == "nginx" else "",
        )


def upload_memory(bench: Bench) -> Iterator[Line]:
    """The memory that the web process grows by for one very large upload."""
    size = bench.scaled(2 * GIBIBYTE, 256 * MEBIBYTE)
    content = bench.content_file(size)
    front = bench.lone_front("memory")
    warm_up(front)
    before = resident_bytes(front.service.pid)
    with peak_resident_bytes(front.service.pid) as peak:
        _send(front, content)
        growth = peak() - before
    front.service.kill()
    yield Line(
        what=f"front's memory during {size // MEBIBYTE} MiB",
        figure=f"+ {growth / MEBIBYTE:.1f} MiB on {before / MEBIBYTE:.0f}",
        target="≤ 32 MiB",
        met=growth <= 32 * MEBIBYTE,
    )


def small_uploads(bench: Bench) -> Iterator[Line]:
    """Many clients with 4 KiB each, compared with the bare durable file followed by the bare transaction."""
    count = bench.scaled(4000, 800)
    front, content = bench.front, os.urandom(4096)
    bare_url = _bare_database(bench)
    warm_up(front)

    def ours() -> float:
        requests = iter([front.upload(content) for _ in range(count)])
        return run_clients(front.port, requests, clients=CLIENTS, expect=201)

    def files() -> Sample:
        directory = bench.directory / "bare-files"
        return Sample(
            seconds=bare_operations.write_durable_files(
                directory, count=count, byte_size=4096, threads=CLIENTS
            )
        )

    def rows() -> float:
        return bare_operations.commit_upload_rows(bare_url, bench.directory, count=count, clients=CLIENTS)

    taken = interleave(
        bench.scaled(5, 3),
        {
            "ours": lambda: _settled(bench, bench.meter().run(ours)),
            "files": files,
            "rows": lambda: CpuMeter({"postgres": [bench.postgres_pid]}).run(rows),
        },
    )
    seconds = taken["files"].seconds + taken["rows"].seconds
    yield at_least(
        f"uploads of 4 KiB, {CLIENTS} clients",
        f"{count / taken['ours'].seconds:.0f}/s",
        f"bare {count / seconds:.0f}/s (file {count / taken['files'].seconds:.0f}/s,"
        f" rows {count / taken['rows'].seconds:.0f}/s, {taken['rows'].cpu_seconds * 1000 / count:.2f} ms)",
        ratio=seconds / taken["ours"].seconds,
        minimum=0.25,
        cpu=cpu_per(taken["ours"], count, "upload"),
    )
    milliseconds_each = taken["ours"].cpu_seconds * 1000 / count
    yield Line(
        what="the same, CPU of all processes",
        figure=f"{milliseconds_each:.2f} ms",
        target=f"≤ {SMALL_UPLOAD_MILLISECONDS:g} ms",
        met=milliseconds_each <= SMALL_UPLOAD_MILLISECONDS,
    )


def upload_latency(bench: Bench) -> Iterator[Line]:
    """One client with 1 KiB: from its last byte to the response, compared with the same bare writes."""
    count = bench.scaled(600, 150)
    front, content = bench.front, os.urandom(1024)
    warm_up(front)
    connection = Connection(front.port)
    for _ in range(20):
        connection.ask(front.upload(content), expect=201)
    seconds = []

    def uploads() -> None:
        for _ in range(count):
            seconds.append(connection.ask(front.upload(content), expect=201).seconds)
            time.sleep(0.005)

    sample = bench.meter().run(uploads)
    connection.close()
    bare_seconds = _bare_latencies(bench, count // 2)
    p50, p99 = percentile(seconds, 50), percentile(seconds, 99)
    yield Line(
        what="1 KiB, last byte to 201",
        figure=_percentiles(seconds),
        yardstick=f"bare {_percentiles(bare_seconds)}",
        target="p50 ≤ 6 ms, p99 ≤ 25 ms",
        met=p50 <= 0.006 and p99 <= 0.025,
        cpu=cpu_per(sample, count, "upload"),
    )


def placement_latency(bench: Bench) -> Iterator[Line]:
    """From the response, which follows the commit, through the queue and a worker, to the row that is live."""
    count = bench.scaled(60, 10)
    front = bench.front
    warm_up(front)
    # Placement jobs keep a minimum spacing. Wait for the job of the warm-up, and until another may start.
    time.sleep(2 * PlaceStaged.spacing_seconds)
    connection = Connection(front.port)
    database = psycopg2.connect(front.stack.administrator_url)
    database.autocommit = True
    seconds = []
    with database.cursor() as cursor:
        for _ in range(count):
            connection.ask(front.upload(b"x" * 1024), expect=201)
            answered_at = time.perf_counter()
            while _count_staged(cursor):
                time.sleep(0.0002)
            seconds.append(time.perf_counter() - answered_at)
            # A job within the spacing would be delayed, to place later uploads with it.
            time.sleep(PlaceStaged.spacing_seconds)
    connection.close()
    database.close()
    yield Line(
        what="commit to live, through the queue",
        figure=_percentiles(seconds),
    )


def _upload(bench: Bench, content: Path) -> Sample:
    return _settled(bench, bench.meter().run(lambda: _send(bench.front, content)), remove=True)


def _send(front: Front, content: Path) -> None:
    head, tail = front.upload_frame(content.stat().st_size)
    connection = Connection(front.port)
    with content.open("rb") as file:
        connection.send_file(head, file, tail, expect=(201,))
    connection.close()


def _put(port: int, pid: int, path: str, content: Path, stored: Path) -> Sample:
    def put() -> None:
        connection = Connection(port)
        head = request_head("PUT", path, length=content.stat().st_size)
        with content.open("rb") as file:
            connection.send_file(head, file, b"", expect=(200, 201, 204))
        connection.close()

    sample = CpuMeter({"server": [pid]}).run(put)
    stored.unlink()
    return sample


def _settled(bench: Bench, sample: Sample, *, remove: bool = False) -> Sample:
    """Wait until the workers have placed everything. Then delete large content, to spare the disk."""
    database = psycopg2.connect(bench.front.stack.administrator_url)
    database.autocommit = True
    with database.cursor() as cursor:
        while _count_staged(cursor):
            time.sleep(0.02)
    database.close()
    if remove:
        for path in (bench.front.stack.blobs / "objects").glob("*/*"):
            if path.stat().st_size > 64 * MEBIBYTE:
                path.unlink()
    return sample


def _bare_database(bench: Bench) -> str:
    return bench.migrated_database("bare")


def _bare_latencies(bench: Bench, count: int) -> list[float]:
    connection = psycopg2.connect(_bare_database(bench))
    connection.autocommit = True
    seconds = []
    with connection.cursor() as cursor:
        for _ in range(count):
            started_at = time.perf_counter()
            bare_operations.write_durable_files(
                bench.directory / "bare-files", count=1, byte_size=1024, threads=1
            )
            cursor.execute(bare_operations.UPLOAD_ROWS)
            seconds.append(time.perf_counter() - started_at)
            time.sleep(0.005)
    connection.close()
    return seconds


def _count_staged(cursor: psycopg2.extensions.cursor) -> int:
    cursor.execute("SELECT count(*) FROM blobs WHERE state = 'staged'")
    row = cursor.fetchone()
    assert row is not None
    count: int = row[0]
    return count


def _percentiles(seconds: Sequence[float]) -> str:
    return f"p50 {milliseconds(percentile(seconds, 50))}, p99 {milliseconds(percentile(seconds, 99))}"


def _rate(size: int, sample: Sample) -> str:
    return f"{size / MEBIBYTE / sample.seconds:.0f} MiB/s"
