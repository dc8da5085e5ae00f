"""Each attachment that a distribution pushes is stored once, although messages, workers and senders fail."""

import contextlib
import hashlib
import json
import signal
import socket
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import redis
import requests

from shared.media.importing.imports import FetchMedia
from shared.messaging.broker import KEY_PREFIX
from shared.messaging.publisher import create_celery, send
from shared.messaging.queues import MEDIA
from tests.journeys.conftest import Installation, assert_nothing_left_over
from tests.support.agents.rest_clients import TIMEOUT_SECONDS
from tests.support.data.inventory import expire_leases, query, request_sweeps, settle, wait_until_receiving
from tests.support.data.media_samples import SAMPLES, Sample
from tests.support.data.media_sources import MediaSource, Respond, chunked, content, in_turn, status
from tests.support.processes.stack import Service, free_port, wait_until

pytestmark = pytest.mark.usefixtures("workers")
DEVELOPMENT = {"EGRESS_ALLOW_PRIVATE": "true", "EGRESS_ALLOW_HTTP": "true"}


def told(sample: Sample) -> Respond:
    return content(sample.content, sample.media_type)


def untold(sample: Sample) -> Respond:
    return chunked(sample.content)


def after_a_while(sample: Sample) -> Respond:
    return in_turn(status(503), content(sample.content))


@pytest.fixture(scope="module")
def front(installation: Installation) -> Iterator[Service]:
    """Run a web process that permits URLs on this host, with a short timeout for senders."""
    impatience = {"UPLOAD_GRACE_SECONDS": "1", "UPLOAD_MINIMUM_BYTES_PER_SECOND": "100000000"}
    front = installation.stack.web(port=free_port(), **impatience, **DEVELOPMENT)
    with installation.stack.running(front):
        yield front


def test_attachments_are_stored_once_although_workers_die_and_messages_repeat_or_vanish(
    installation: Installation, front: Service
) -> None:
    stack = installation.stack
    with MediaSource() as source:
        pushed: dict[str, Sample] = {}
        for number, answer in enumerate((told, untold, after_a_while)):
            for sample in SAMPLES:
                url = source.serve(f"/{number}/{sample.file_name}", answer(sample))
                pushed[push(installation, front, sample, url)] = sample
        forget_messages(installation)
        send_twice(installation, len(pushed))
        doomed = stack.worker("media", FAULTS="upload.sealed=3", **DEVELOPMENT)
        with stack.running(doomed):
            wait_until(lambda: has_died(installation, doomed), "the worker dies")
        send_twice(installation, len(pushed))
        with stack.running(stack.worker("media", **DEVELOPMENT)):
            assert_nothing_left_over(stack)
    for import_id, sample in pushed.items():
        stored = read(installation, front, import_id)
        assert (stored["state"], stored["code"]) == ("Stored", None)
        file = installation.owner.read(stored["fileId"]).json()
        assert file["metadata"]["contentSha256"] == hashlib.sha256(sample.content).hexdigest()
        assert installation.owner.download(stored["fileId"]).content == sample.content
    ids = tuple(map(str, pushed))
    count = "SELECT count(*), count(DISTINCT file_id) FROM media_imports WHERE id::text IN %s"
    assert query(stack, count, (ids,)) == [(len(pushed), len(pushed))]


def test_slow_sender_of_bytes_is_disconnected_and_leaves_nothing(
    installation: Installation, front: Service
) -> None:
    settle(installation.stack)  # Drain first, so that only this test's bytes are staged.
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\nContent-Type: a/b\r\n\r\n'
    head = (
        f"POST {path_of(installation)} HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {installation.credentials['distribution']['token']}\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 2000000\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", front.port or 0), timeout=TIMEOUT_SECONDS) as connection:
        connection.sendall(head.encode() + body + bytes(1_000_000))
        wait_until_receiving(installation.stack.blobs)
        answer = b""
        with contextlib.suppress(OSError):
            while not answer:
                connection.sendall(b"x")
                connection.settimeout(0.1)
                with contextlib.suppress(TimeoutError):
                    answer = connection.recv(100)
        assert answer.startswith(b"HTTP/1.1 408 ")
    assert_nothing_left_over(installation.stack)


def push(installation: Installation, front: Service, sample: Sample, url: str) -> str:
    """Push a URL twice; return the import."""
    body = {
        "messageId": uuid4().hex,
        "attachmentId": "1",
        "url": url,
        "fileName": sample.file_name,
        "mediaType": sample.media_type,
    }
    first, again = (ask(installation, front, "POST", "", data=json.dumps(body)) for _ in range(2))
    assert first["importId"] == again["importId"]
    import_id: str = first["importId"]
    return import_id


def read(installation: Installation, front: Service, import_id: str) -> dict[str, Any]:
    found: dict[str, Any] = ask(installation, front, "GET", f"/{import_id}")
    return found


def ask(installation: Installation, front: Service, method: str, below: str, **options: Any) -> Any:
    token = installation.credentials["distribution"]["token"]
    answer = requests.request(
        method,
        front.url + path_of(installation) + below,
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        timeout=TIMEOUT_SECONDS,
        **options,
    )
    assert answer.status_code in (200, 202), answer.text
    return answer.json()


def path_of(installation: Installation) -> str:
    return f"/distributions/{installation.credentials['distribution']['id']}/media"


def has_died(installation: Installation, worker: Service) -> bool:
    """Expire the leases of dead workers, and enqueue due work again. Return whether this worker died too."""
    if worker.is_running:
        expire_leases(installation.stack)
        request_sweeps(installation.stack)
        time.sleep(0.2)
    return worker.returncode == -signal.SIGKILL


def forget_messages(installation: Installation) -> None:
    """Delete the broker's messages for the media worker, after the web process has sent them."""
    with contextlib.closing(redis.Redis.from_url(installation.stack.redis_url)) as valkey:
        wait_until(lambda: valkey.llen(KEY_PREFIX + MEDIA), "the front has published")
        time.sleep(0.1)
        valkey.delete(KEY_PREFIX + MEDIA)


def send_twice(installation: Installation, count: int) -> None:
    with contextlib.closing(create_celery(installation.stack.redis_url)) as app:
        for _ in range(2 * count):
            send(app, FetchMedia())
