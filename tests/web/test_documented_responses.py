"""A response that the OpenAPI document does not describe fails the test that receives it."""

import json
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, Response

from shared.runtime.deferred_responses import DeferredResponse, WakeUp
from tests.support.processes.checked_processes import look
from tests.support.web.checked_responses import Given, find_undocumented
from tests.support.web.web_process import Front

ID = "01890000-0000-7000-8000-000000000000"
HEALTH = {"Content-Type": "application/json", "X-Request-Id": "x"}


def given(status: int = 200, headers: dict[str, str] = HEALTH, body: Any = None) -> Given:
    content = json.dumps(body if body is not None else {"status": "ok"}).encode()
    return Given(method="GET", rule="/healthz", status=status, headers=headers, body=content)


def test_documented_response_passes() -> None:
    assert find_undocumented(given()) is None


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (given(status=302), "this status is not described"),
        (given(headers={**HEALTH, "X-Secret": "1"}), "the header X-Secret is not described"),
        (given(headers={**HEALTH, "Content-Type": "text/html"}), "media type 'text/html' is not described"),
        (given(body={"status": 7}), "status is not as described"),
        (given(body={"status": "ok", "more": 1}), "is not as described"),
    ],
)
def test_undocumented_response_is_found(answer: Given, complaint: str) -> None:
    assert complaint in (find_undocumented(answer) or "")


def test_an_error_with_a_code_of_another_operation_is_found() -> None:
    problem = {
        "type": "http://localhost/problems/file_expired",
        "title": "File expired",
        "status": 401,
        "detail": "It is gone.",
        "code": "file_expired",
        "requestId": "x",
    }
    headers = {"Content-Type": "application/problem+json", "X-Request-Id": "x", "WWW-Authenticate": "Bearer"}
    answer = Given(
        method="GET",
        rule="/files/<id:file_id>",
        status=401,
        headers=headers,
        body=json.dumps(problem).encode(),
    )
    assert "code is not as described" in (find_undocumented(answer) or "")


def test_each_event_of_a_stream_is_checked() -> None:
    def streamed(*events: dict[str, Any]) -> Given:
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        headers = {"Content-Type": "text/event-stream; charset=utf-8"}
        path = "/v1/chat/completions"
        return Given(method="POST", rule=path, status=200, headers=headers, body=text.encode())

    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}
    assert find_undocumented(streamed(chunk, chunk)) is None
    assert find_undocumented(streamed(chunk, {"object": "nothing"})) is not None


def test_test_client_fails_on_an_undocumented_response(front: Front) -> None:
    def spoil(response: Response) -> Response:
        response.headers["X-Undescribed"] = "1"
        return response

    front.app.after_request_funcs.setdefault(None, []).append(spoil)
    try:
        with pytest.raises(AssertionError, match="X-Undescribed"):
            front.get("/healthz")
    finally:
        front.app.after_request_funcs[None].remove(spoil)


@pytest.mark.parametrize("is_held", [False, True])
def test_web_process_records_undocumented_stream_events(tmp_path: Path, is_held: bool) -> None:
    frames = iter([b": ping\n\n", b"", b'data: {"object": 7}\n\n', b'data: {"cut'])
    app = Flask(__name__)
    app.add_url_rule("/v1/chat/completions", view_func=lambda: "", methods=["POST"])
    with app.test_request_context("/v1/chat/completions", method="POST"):
        response = Response(frames, content_type="text/event-stream; charset=utf-8")
        if is_held:
            pieces = (frame for frame in frames)
            response.response = DeferredResponse(
                pieces, WakeUp(), idle_seconds=lambda: 0.0, is_blocking=False
            )
        watched = look(tmp_path / "found", response)
        assert len([*watched.response]) == 4
    assert "POST /v1/chat/completions answered 200" in (tmp_path / "found").read_text()
