"""A blob store without room: uploads receive 507 and leave nothing."""

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.journeys.conftest import assert_nothing_left_over
from tests.journeys.raw_uploads import raw_upload
from tests.support.agents.rest_clients import Client, exchange_token
from tests.support.data.inventory import wait_until_receiving
from tests.support.processes.stack import Servers, Stack

MEBIBYTE = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of 16 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_upload_into_a_full_store_receives_507_and_leaves_nothing(
    servers: Servers, small_disk: Path, tmp_path: Path
) -> None:
    stack = Stack(
        tmp_path / "stack",
        servers,
        blob_store=(small_disk / "blobs").as_uri(),
        settings={"BLOB_STORE_RESERVE_BYTES": "0"},
    )
    stack.blobs = small_disk / "blobs"
    credentials = stack.set_up()
    front = stack.web()
    with stack.running(front, stack.worker("files"), stack.worker("background")):
        agent = Client(front.url, exchange_token(front.url, credentials))
        too_large = agent.upload(b"x" * 20 * MEBIBYTE, operation=uuid4())
        assert (too_large.status_code, too_large.json()["code"]) == (507, "storage_full")

        head, body = raw_upload(agent, b"x" * 12 * MEBIBYTE)
        with socket.create_connection(("127.0.0.1", stack.web_port)) as connection:
            connection.settimeout(90)
            connection.sendall(head + body[:MEBIBYTE])
            wait_until_receiving(stack.blobs)
            filler = small_disk / "filler"
            filler.write_bytes(b"x" * 10 * MEBIBYTE)
            with contextlib.suppress(
                BrokenPipeError
            ):  # The web process responds before it has read the whole body.
                connection.sendall(body[MEBIBYTE:])
            assert connection.recv(100).startswith(b"HTTP/1.1 507 ")
        assert_nothing_left_over(stack)
        filler.unlink()
        assert agent.upload(b"x" * 12 * MEBIBYTE, operation=uuid4()).status_code == 201
        assert_nothing_left_over(stack)
