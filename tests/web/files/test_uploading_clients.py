"""Common clients upload, and receive a refusal while they are still sending."""

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.files.serving import gunicorn

CONTENT = os.urandom(3_000_000) + b"\r\n--"
RECEIVED = {"name": 'naïve "q" 😀.bin', "sha256": hashlib.sha256(CONTENT).hexdigest()}
SMALL_BODY_BYTES = 500_000


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with gunicorn() as port:
        yield f"http://127.0.0.1:{port}/upload"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / 'naïve "q" 😀.bin'
    path.write_bytes(CONTENT)
    return path


def curl(*arguments: str) -> Any:
    done = subprocess.run(["curl", "-sS", *arguments], capture_output=True, check=True, timeout=60)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "options", [[], ["-H", "Transfer-Encoding: chunked"], ["-H", "Expect:"], ["-H", "Expect: 100-continue"]]
)
def test_curl_uploads(address: str, path: Path, options: list[str]) -> None:
    # Its own form syntax needs the name's quotes escaped; what it sends is up to its version.
    quoted = str(path).replace('"', '\\"')
    assert curl(*options, "-F", f'file=@"{quoted}";type=text/x-test', f"{address}?{len(CONTENT)}") == RECEIVED


def test_requests_uploads(address: str, path: Path) -> None:
    with path.open("rb") as file:
        response = requests.post(address, files={"file": (path.name, file, "text/plain")}, timeout=60)
    assert response.json() == RECEIVED


@pytest.mark.parametrize("size", [100, SMALL_BODY_BYTES, 30_000_000])
def test_a_refusal_reaches_a_client_that_is_still_sending(address: str, size: int) -> None:
    files = {"file": ("a", b"x" * size, "text/plain")}
    with requests.Session() as session:
        for _ in range(2):
            response = session.post(f"{address}?10", files=files, timeout=60)
            assert (response.status_code, response.json()) == (422, {"code": "byte_size_mismatch"})
            assert (response.headers["Connection"] == "close") == (size > SMALL_BODY_BYTES)
