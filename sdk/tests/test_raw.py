"""Requests to any route: JSON responses and streams of events."""

from __future__ import annotations

import json

import pytest

from quartermaster import ConnectionFailed, errors
from sdk.tests.forms import Connect
from sdk.tests.scripted_service import Answer, ScriptedService, in_turn

EVENTS = b': a comment\n\nid: 1\nevent: first\ndata: {"a": 1}\n\ndata: {"b":\ndata: 2}\n\ndata: [DONE]\n\n'
ASKED = {"stream": True}
NOT_FOUND = {
    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
    "reason": "TASK_NOT_FOUND",
    "domain": "a2a-protocol.org",
    "metadata": {"requestId": "request-1"},
}
VIOLATED = {
    "@type": "type.googleapis.com/google.rpc.BadRequest",
    "fieldViolations": [{"field": "message.parts", "description": "must not be empty"}],
}
INVALID = {"@type": NOT_FOUND["@type"], "reason": "INVALID_PARAMS", "domain": "a2a-protocol.org"}


def test_a_route_is_asked_with_the_credential_and_answers_json(
    service: ScriptedService, connect: Connect
) -> None:
    service.script = in_turn(Answer(200, {"data": []}), Answer(204))
    client = connect(**service.key)
    assert client.raw.request("GET", "/v1/models", query={"limit": "1"}) == {"data": []}
    assert client.raw.request("DELETE", "/admin/budgets/1", headers={"X-Own": "1"}) is None
    first, second = service.requests
    assert (first.path, dict(first.query), first.headers["authorization"]) == (
        "/v1/models",
        {"limit": "1"},
        "Bearer svk_key",
    )
    assert (second.method, second.headers["x-own"]) == ("DELETE", "1")


def test_a_post_is_sent_once_unless_it_had_no_effect(service: ScriptedService, connect: Connect) -> None:
    service.script = lambda _: Answer(502, {"code": "provider_error", "detail": "No."})
    with pytest.raises(errors.ServerError):
        connect(**service.key).raw.request("POST", "/v1/responses", json={})
    assert len(service.requests) == 1


def test_a_stream_gives_the_data_of_each_event(service: ScriptedService, connect: Connect) -> None:
    service.script = in_turn(Answer(200, EVENTS, {"Content-Type": "text/event-stream"}))
    assert list(connect(**service.key).raw.stream("/v1/responses", json=ASKED)) == [{"a": 1}, {"b": 2}]
    (request,) = service.requests
    assert (json.loads(request.body), request.headers["accept"]) == (ASKED, "text/event-stream")


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\u0085"])
def test_unicode_line_separator_stays_in_the_event_text(
    service: ScriptedService, connect: Connect, character: str
) -> None:
    content = f'data: {{"a": "b{character}c"}}\n\n'.encode()
    service.script = in_turn(Answer(200, content, {"Content-Type": "text/event-stream"}))
    assert list(connect(**service.key).raw.stream("/v1/responses", json=ASKED)) == [{"a": f"b{character}c"}]


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_a_stream_that_cannot_be_read_is_a_failed_connection(
    service: ScriptedService, connect: Connect, encoding: str
) -> None:
    headers = {"Content-Type": "text/event-stream", "Content-Encoding": encoding}
    service.script = in_turn(Answer(200, b"data: {\n\n", headers))
    with pytest.raises(ConnectionFailed):
        list(connect(**service.key).raw.stream("/v1/responses", json=ASKED))


def test_a_stream_that_is_refused_or_cut_says_so(service: ScriptedService, connect: Connect) -> None:
    service.script = in_turn(
        Answer(402, {"code": "insufficient_credits", "detail": "No credits."}),
        Answer(200, EVENTS, {"Content-Type": "text/event-stream"}, cut_at=50),
    )
    client = connect(**service.key)
    with pytest.raises(errors.PaymentRequired):
        list(client.raw.stream("/v1/responses", json=ASKED))
    with pytest.raises(ConnectionFailed):
        list(client.raw.stream("/v1/responses", json=ASKED))


def test_a_refusal_of_a2a_has_the_reason_of_its_details(service: ScriptedService, connect: Connect) -> None:
    refusal = {"code": 404, "status": "NOT_FOUND", "message": "No such task.", "details": [NOT_FOUND]}
    service.script = in_turn(Answer(404, {"error": refusal}))
    with pytest.raises(errors.NotFound) as caught:
        connect(**service.key).raw.request("GET", "/tasks/1")
    raised = caught.value
    assert (raised.status, raised.code, raised.message) == (404, "TASK_NOT_FOUND", "No such task.")
    assert raised.request_id == "request-1"


def test_a_refusal_of_a2a_names_the_wrong_fields(service: ScriptedService, connect: Connect) -> None:
    refusal = {
        "code": 400,
        "status": "INVALID_ARGUMENT",
        "message": "Wrong.",
        "details": [VIOLATED, INVALID],
    }
    service.script = in_turn(Answer(400, {"error": refusal}))
    with pytest.raises(errors.InvalidRequest) as caught:
        connect(**service.key).raw.request("POST", "/message:send", json={})
    assert caught.value.code == "INVALID_PARAMS"
    assert caught.value.errors == (
        errors.FieldError(location="request", name="message.parts", message="must not be empty"),
    )


@pytest.mark.parametrize(
    "details", [None, [], {}, ["TASK_NOT_FOUND"], [{"reason": 5}], [{"@type": "x"}], [{"fieldViolations": 3}]]
)
def test_a2a_error_without_reason_has_its_status_name_as_code(
    service: ScriptedService, connect: Connect, details: object
) -> None:
    refusal = {"code": 404, "status": "NOT_FOUND", "message": "No.", "details": details}
    service.script = in_turn(Answer(404, {"error": refusal}))
    with pytest.raises(errors.NotFound) as caught:
        connect(**service.key).raw.request("GET", "/tasks/1")
    assert caught.value.code == "NOT_FOUND"
