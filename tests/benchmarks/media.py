"""Rows about media: attachments that are pushed as bytes, and those that are fetched from a pushed URL."""

import json
import os
import time
from collections.abc import Iterator
from uuid import uuid4

import psycopg2

from tests.benchmarks.clients import Connection, multipart_frame, run_clients
from tests.benchmarks.runner.measurements import Sample, interleave
from tests.benchmarks.runner.product import Bench, Front, warm_up
from tests.benchmarks.runner.report import Line, cpu_per
from tests.support.data.media_samples import PNG
from tests.support.data.media_sources import MediaSource, content

CLIENTS = 16
CONTENT_BYTES = 50 << 10
PUSH_MILLISECONDS, IMPORT_MILLISECONDS = 6.0, 12.0


def media(bench: Bench) -> Iterator[Line]:
    """Push 50 KiB from many clients, as bytes and as a URL."""
    count = bench.scaled(1600, 320)
    front = bench.media_front
    attachment = PNG.content + os.urandom(CONTENT_BYTES - len(PNG.content))
    warm_up(front)
    with MediaSource() as source:
        url = source.serve("/attachment", content(attachment, PNG.media_type))
        for _ in range(CLIENTS):
            _ask(front, _by_bytes(front, attachment))
            _ask(front, _by_address(front, url))

        def pushes() -> float:
            requests = iter([_by_bytes(front, attachment) for _ in range(count)])
            return run_clients(front.port, requests, clients=CLIENTS, expect=202)

        def imports() -> None:
            requests = iter([_by_address(front, url) for _ in range(count)])
            run_clients(front.port, requests, clients=CLIENTS, expect=202)
            _wait_until_stored(front)

        meter = bench.meter(front)
        taken = interleave(
            bench.scaled(5, 3), {"pushes": lambda: meter.run(pushes), "imports": lambda: meter.run(imports)}
        )
    yield _line("multipart pushes of 50 KiB", taken["pushes"], count, PUSH_MILLISECONDS)
    yield _line("imports of 50 KiB by address", taken["imports"], count, IMPORT_MILLISECONDS)


def _line(what: str, sample: Sample, count: int, milliseconds: float) -> Line:
    return Line(
        what=f"{what}, {CLIENTS} clients",
        figure=f"{count / sample.seconds:.0f}/s",
        target=f"≤ {milliseconds:g} ms CPU",
        met=sample.cpu_seconds * 1000 / count <= milliseconds,
        cpu=cpu_per(sample, count, "attachment"),
    )


def _by_bytes(front: Front, attachment: bytes) -> bytes:
    head, tail = multipart_frame("attachment.png")
    boundary = head.partition(b"\r\n")[0]
    fields = b"".join(
        boundary + f'\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in (("messageId", uuid4().hex), ("attachmentId", "1"))
    )
    body = fields + head + attachment + tail
    return _head(front, len(body), f"multipart/form-data; boundary={boundary[2:].decode()}") + body


def _by_address(front: Front, url: str) -> bytes:
    named = {"messageId": uuid4().hex, "attachmentId": "1", "url": url}
    body = json.dumps({**named, "fileName": PNG.file_name, "mediaType": PNG.media_type}).encode()
    return _head(front, len(body), "application/json") + body


def _head(front: Front, length: int, content_type: str) -> bytes:
    path = f"/distributions/{front.distribution['id']}/media"
    return front.head(
        "POST", path, token=front.distribution["token"], length=length, Content_Type=content_type
    )


def _ask(front: Front, request: bytes) -> None:
    connection = Connection(front.port)
    connection.ask(request, expect=202)
    connection.close()


def _wait_until_stored(front: Front) -> None:
    database = psycopg2.connect(front.stack.administrator_url)
    database.autocommit = True
    with database.cursor() as cursor:
        while _count_waiting(cursor):
            time.sleep(0.02)
    database.close()


def _count_waiting(cursor: psycopg2.extensions.cursor) -> int:
    cursor.execute("SELECT count(*) FROM media_imports WHERE state IN ('Queued', 'Fetching')")
    row = cursor.fetchone()
    assert row is not None
    count: int = row[0]
    return count
