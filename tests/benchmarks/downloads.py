"""Rows about downloads: by the web process alone, by nginx after the web process's check, and by nginx alone."""

import json
from collections.abc import Callable, Iterator

from tests.benchmarks.clients import Connection, request_head
from tests.benchmarks.runner.measurements import Contender, CpuMeter, Sample, interleave, percentile
from tests.benchmarks.runner.product import Bench, warm_up
from tests.benchmarks.runner.report import Line, at_least, cpu_per, milliseconds, missing
from tests.benchmarks.uploads import GIBIBYTE, MEBIBYTE, _settled

_MINIMUM = {"front alone": 0.5, "X-Accel-Redirect": 0.95}


def large_downloads(bench: Bench) -> Iterator[Line]:
    """Measure one large file and one client, with a warm page cache."""
    size = bench.scaled(GIBIBYTE, 128 * MEBIBYTE)
    front, nginx = bench.front, bench.nginx
    warm_up(front)
    path, version_id = _store(bench, size)
    request = front.head("GET", path)
    contenders: dict[str, Contender] = {
        "front alone": lambda: bench.meter().run(_getting(front.port, request, size))
    }
    if nginx is not None:
        static = request_head("GET", f"/static/objects/{version_id[-2:]}/{version_id}")
        own = CpuMeter({"nginx": [nginx.pid]})
        both = CpuMeter({"nginx": [nginx.pid], "web": [bench.proxied_front.service.pid]})
        contenders["X-Accel-Redirect"] = lambda: both.run(_getting(nginx.port, request, size))
        contenders["nginx"] = lambda: own.run(_getting(nginx.port, static, size))
    for contender in contenders.values():
        contender()
    taken = interleave(bench.scaled(15, 5), contenders)
    yardstick = taken.pop("nginx", None)
    for name, ours in taken.items():
        what = f"download of {size // MEBIBYTE} MiB, {name}"
        if yardstick is None:
            yield missing(what, "nginx", _rate(size, ours))
            continue
        yield at_least(
            what,
            _rate(size, ours),
            f"nginx {_rate(size, yardstick)}, {yardstick.cpu_seconds:.2f} CPU s",
            ratio=yardstick.seconds / ours.seconds,
            minimum=_MINIMUM[name],
            cpu=cpu_per(ours, size / GIBIBYTE, "GiB"),
        )
    yield _first_byte(bench, request)


def _first_byte(bench: Bench, request: bytes) -> Line:
    seconds = []
    for _ in range(bench.scaled(100, 30)):
        connection = Connection(bench.front.port)
        seconds.append(connection.ask(_first_range(request), expect=206).first_byte_seconds)
        connection.close()
    p50 = percentile(seconds, 50)
    return Line(
        what="first byte of a download",
        figure=f"p50 {milliseconds(p50)}, p99 {milliseconds(percentile(seconds, 99))}",
        target="≤ 5 ms",
        met=p50 <= 0.005,
    )


def _first_range(request: bytes) -> bytes:
    return request.removesuffix(b"\r\n") + b"Range: bytes=0-65535\r\n\r\n"


def _store(bench: Bench, size: int) -> tuple[str, str]:
    front = bench.front
    head, tail = front.upload_frame(size)
    connection = Connection(front.port)
    with bench.content_file(size).open("rb") as file:
        answer = json.loads(connection.send_file(head, file, tail, expect=(201,)).body)
    connection.close()
    _settled(bench, Sample(seconds=0))
    return f"/files/{answer['id']}/content", answer["versionId"]


def _getting(port: int, request: bytes, size: int) -> Callable[[], None]:
    def get() -> None:
        connection = Connection(port)
        answer = connection.ask(request, expect=200)
        connection.close()
        assert answer.byte_size == size

    return get


def _rate(size: int, sample: Sample) -> str:
    return f"{size / MEBIBYTE / sample.seconds:.0f} MiB/s"
