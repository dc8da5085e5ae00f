"""Refusals that the server sends by itself have the error format of their path."""

import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web.server.trivial_front import APPLICATION, TrivialFront, post, trivial_front

WITH_DIALECTS = f"""
from web.error_responses.error_formats import Dialects
{APPLICATION}
application.extensions = {{"error_dialects": Dialects(base_url="https://qm.example")}}
"""
LONG_HEAD = b"POST %s HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 70_000
LONG_FIELD = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nX-Long: " + b"x" * 9000 + b"\r\n\r\n"
TWO_LENGTHS = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx"


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrivialFront]:
    with trivial_front(
        tmp_path_factory.mktemp("front"), WITH_DIALECTS, WEB_SMALL_BODY_SECONDS="1"
    ) as running:
        yield running


def read_refusal(connection: socket.socket) -> tuple[int, dict[str, str], Any]:
    """Read until the server closes the connection. Return status, headers and body."""
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert headers["content-length"] == str(len(body))
    return int(first.split(" ")[1]), headers, json.loads(body)


def is_problem(headers: dict[str, str], body: Any, status: int, code: str) -> None:
    assert headers["content-type"] == "application/problem+json"
    assert (body["status"], body["code"], body["type"]) == (
        status,
        code,
        f"https://qm.example/problems/{code}",
    )
    assert body["requestId"] == headers["x-request-id"]


def is_openai(headers: dict[str, str], body: Any, status: int, code: str) -> None:
    assert headers["content-type"] == "application/json"
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["code"] == code
    assert headers.get("x-should-retry") == (None if status in (408, 429) else "false")


def is_a2a(headers: dict[str, str], body: Any, status: int, code: str) -> None:
    assert body["error"]["code"] == status
    assert body["error"]["status"] in ("DEADLINE_EXCEEDED", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")
    (information,) = body["error"]["details"]
    assert information["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert information["metadata"]["requestId"] == headers["x-request-id"]
    reasons = {"malformed_request": "INVALID_REQUEST"}
    assert information["reason"] == reasons.get(code, code.upper())


def is_oauth(headers: dict[str, str], body: Any, status: int, code: str) -> None:
    assert set(body) == {"error", "error_description"}
    assert headers["cache-control"] == "no-store"


DIALECTS = [
    (b"/files/agent-artifacts?operationId=1", is_problem),
    (b"http://qm.example/v1/chat/completions", is_openai),
    (b"/v1/responses?a=1", is_openai),
    (b"/message:send", is_a2a),
    (b"/agents/01890000-0000-7000-8000-000000000000/message:stream", is_a2a),
    (b"/oauth/token", is_oauth),
]


@pytest.mark.parametrize(("path", "check"), DIALECTS)
@pytest.mark.parametrize(
    ("request_of", "status", "code"),
    [
        (lambda path: post(b"begun", length=1000, path=path), 408, "upload_timeout"),
        (lambda path: LONG_HEAD % path, 431, "malformed_request"),
        (lambda path: LONG_FIELD % path, 431, "malformed_request"),
        (lambda path: TWO_LENGTHS % path, 400, "malformed_request"),
    ],
    ids=["slow body", "long head", "long field", "two lengths"],
)
def test_server_refusal_has_the_error_format_of_its_path(
    front: TrivialFront,
    path: bytes,
    check: Callable[..., None],
    request_of: Callable[[bytes], bytes],
    status: int,
    code: str,
) -> None:
    with front.connect(request_of(path)) as connection:
        answered, headers, body = read_refusal(connection)
    assert answered == status
    check(headers, body, status, code)


@pytest.mark.parametrize(("path", "check"), DIALECTS)
def test_evicted_request_gets_an_error_in_its_format(
    tmp_path: Path, path: bytes, check: Callable[..., None]
) -> None:
    big = post(b"a" * (100 << 10), length=101 << 10, path=path)
    with (
        trivial_front(tmp_path, WITH_DIALECTS, WEB_GATHERED_BYTES=str(256 << 10)) as front,
        contextlib.ExitStack() as stack,
    ):
        greedy = [stack.enter_context(front.connect(big)) for _ in range(6)]
        status, headers, body = read_refusal(greedy[0])
    assert status == 429
    assert headers["retry-after"] == "1"
    check(headers, body, 429, "concurrency_limit")


def test_malformed_request_or_failing_application_gets_no_page_and_no_details(
    tmp_path: Path,
) -> None:
    failing = WITH_DIALECTS.replace(
        'if environ["PATH_INFO"] == "/slow":', 'if environ["PATH_INFO"] == "/v1/x": 1 / 0\n    if False:'
    )
    with trivial_front(tmp_path, failing) as front:
        with front.connect(b"nonsense <b>\r\n\r\n") as connection:
            status, headers, body = read_refusal(connection)
            assert status == 400
            is_problem(headers, body, 400, "malformed_request")
            assert "nonsense" not in str(body)
        with front.connect(b"GET /v1/x HTTP/1.1\r\nHost: x\r\n\r\n") as connection:
            status, headers, body = read_refusal(connection)
            assert (status, body["error"]["code"]) == (500, "server_error")
