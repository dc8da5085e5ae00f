"""S3 servers for tests: separate processes on a free port, which end with the test run.

Each starts once. Tests that share one have buckets of their own.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.embedded.ports import find_free_port
from shared.files.blobs import S3Access

START_SECONDS = 90.0


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Access]:
    with running_moto(tmp_path_factory.mktemp("moto")) as access:
        yield access


@pytest.fixture(scope="session")
def ministack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Access]:
    with running_ministack(tmp_path_factory.mktemp("ministack")) as access:
        yield access


@contextmanager
def running_moto(directory: Path) -> Iterator[S3Access]:
    """Run moto's server. It has few checks of checksums, and returns 500 instead of NoSuchUpload."""
    port = find_free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _running(command, {}, port, directory / "moto.log") as access:
        yield access


@contextmanager
def running_ministack(directory: Path) -> Iterator[S3Access]:
    """Run ministack's server. It is strict about checksums, conditions and aborted uploads."""
    port = find_free_port()
    environment = {"GATEWAY_PORT": str(port), "BIND_HOST": "127.0.0.1", "SERVICES": "s3", "SFTP_ENABLED": "0"}
    with _running(
        [sys.executable, "-m", "ministack"], environment, port, directory / "ministack.log"
    ) as access:
        yield access


@contextmanager
def _running(
    command: Sequence[str], environment: Mapping[str, str], port: int, log: Path
) -> Iterator[S3Access]:
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=output, stderr=output, cwd=log.parent
        ) as server,
    ):
        try:
            _wait_until_open(port, server)
            yield S3Access(
                endpoint_url=f"http://127.0.0.1:{port}",
                region="us-east-1",
                access_key_id="test",
                secret_access_key="test",
            )
        finally:
            server.kill()


def _wait_until_open(port: int, server: subprocess.Popen[bytes]) -> None:
    give_up_at = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up_at and server.poll() is None:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"the S3 server on port {port} did not start")
