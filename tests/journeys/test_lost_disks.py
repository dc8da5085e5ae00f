"""A disk is full, read-only or lost under running processes: no acknowledged content is lost, and reads continue.

No process restarts. Everything works again within seconds of the repair.
"""

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests

from tests.journeys.conftest import assert_nothing_left_over
from tests.support.agents.rest_clients import Client, exchange_token
from tests.support.processes.stack import Servers, Service, Stack, free_port, wait_until
from tests.support.servers.small_disks import CannotMount, SmallDisk, mounted_disk

REPAIR_SECONDS = 30.0
RESERVE_BYTES = 1 << 20
FAULTS: dict[str, tuple[Callable[[SmallDisk], None], int, str]] = {
    "full": (lambda disk: disk.fill(), 507, "storage_full"),
    "full to its reserve": (lambda disk: disk.fill(leaving_bytes=RESERVE_BYTES // 2), 507, "storage_full"),
    "read-only": (lambda disk: disk.make_read_only(), 507, "storage_read_only"),
    "lost": (lambda disk: disk.lose(), 503, "blob_store_unavailable"),
}


@dataclass(frozen=True, kw_only=True)
class OnDisk:
    """An installation whose store is on a small disk."""

    stack: Stack
    disk: SmallDisk
    front: Service
    agent: Client


@pytest.fixture(scope="module")
def on_disk(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnDisk]:
    directory = tmp_path_factory.mktemp("disks")
    try:
        with mounted_disk(directory, size_bytes=64 << 20) as disk:
            blobs = disk.path / "blobs"
            stack = Stack(
                directory / "stack",
                servers,
                blob_store=blobs.as_uri(),
                settings={"BLOB_STORE_RESERVE_BYTES": str(RESERVE_BYTES)},
            )
            stack.blobs = blobs
            credentials = stack.set_up()
            front = stack.web()
            with stack.running(front, stack.worker("files"), stack.worker("background")):
                agent = Client(front.url, exchange_token(front.url, credentials))
                yield OnDisk(stack=stack, disk=disk, front=front, agent=agent)
    except CannotMount as error:
        pytest.skip(str(error))


@dataclass
class Writer:
    """Uploads and reads continuously, and remembers what was acknowledged."""

    agent: Client
    over: threading.Event = field(default_factory=threading.Event)
    acknowledged: dict[str, bytes] = field(default_factory=dict)
    refusals: set[tuple[int, str]] = field(default_factory=set)
    reads: list[tuple[int, str]] = field(default_factory=list)

    def run(self) -> None:
        while not self.over.is_set():
            content = uuid4().bytes * 1000
            answer = self.agent.upload(content, operation=uuid4())
            if answer.status_code == 201:
                self.acknowledged[answer.json()["id"]] = content
            else:
                self.refusals.add((answer.status_code, code_of(answer)))
            oldest = next(iter(self.acknowledged), None)
            if oldest is not None:
                found = self.agent.download(oldest)
                is_right = found.content == self.acknowledged[oldest]
                self.reads.append((found.status_code, "content" if is_right else code_of(found)))


def readiness(front: Service) -> int:
    """Return the status of the readiness check; it is cached for a second at most."""
    return requests.get(f"{front.url}/readyz", timeout=60).status_code


def code_of(answer: requests.Response) -> str:
    try:
        body: Any = answer.json()
    except requests.JSONDecodeError:
        return "other bytes"
    return str(body.get("code"))


@pytest.mark.parametrize("fault", FAULTS)
def test_acknowledged_content_survives_and_writes_work_soon_after_the_repair(
    on_disk: OnDisk, fault: str
) -> None:
    strike, status, code = FAULTS[fault]
    writer = Writer(on_disk.agent)
    thread = threading.Thread(target=writer.run)
    thread.start()
    try:
        wait_until(lambda: len(writer.acknowledged) > 5, "uploads are acknowledged")
        strike(on_disk.disk)
        wait_until(lambda: writer.refusals, "uploads are refused")
        before = len(writer.reads)
        wait_until(lambda: len(writer.reads) > before + 5, "reads go on")
        wait_until(lambda: readiness(on_disk.front) == 503, "it is not ready")
        on_disk.disk.repair()
        known = len(writer.acknowledged)
        wait_until(lambda: len(writer.acknowledged) > known + 1, "uploads work again", seconds=REPAIR_SECONDS)
    finally:
        on_disk.disk.repair()
        writer.over.set()
        thread.join()
    assert writer.refusals == {(status, code)}
    assert set(writer.reads) <= {(200, "content")} | ({(503, code)} if fault == "lost" else set())
    for file_id, content in writer.acknowledged.items():
        assert on_disk.agent.download(file_id).content == content
    wait_until(lambda: readiness(on_disk.front) == 200, "it is ready")
    assert_nothing_left_over(on_disk.stack)


def test_processes_start_only_with_the_mount_and_create_nothing_without_it(
    on_disk: OnDisk,
) -> None:
    stored = on_disk.agent.upload(b"stored before", operation=uuid4()).json()
    front = on_disk.stack.web(port=free_port())
    workers = [on_disk.stack.worker(name) for name in ("files", "background", "media", "agents")]
    on_disk.disk.lose()
    try:
        for process in (front, *workers):
            process.start()
            assert process.wait_for_end() == os.EX_CONFIG, process.name
            assert process.has_logged("check that its volume is mounted"), process.name
        assert list(Path(on_disk.disk.path).iterdir()) == []
        on_disk.disk.find()
        with on_disk.stack.running(front, *workers):
            assert on_disk.agent.download(stored["id"], via=front.url).content == b"stored before"
            assert on_disk.agent.upload(b"x", operation=uuid4(), via=front.url).status_code == 201
    finally:
        on_disk.disk.repair()
    assert_nothing_left_over(on_disk.stack)


def test_web_process_without_access_to_its_store_starts_and_is_not_ready(on_disk: OnDisk) -> None:
    front = on_disk.stack.web(
        port=free_port(), DATABASE_URL=f"postgresql://nobody@127.0.0.1:{free_port()}/none"
    )
    with on_disk.stack.running(front):
        assert front.has_logged("blob_store.not_compared")
        assert readiness(front) == 503
