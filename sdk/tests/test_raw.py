"""Any route: JSON for JSON, and streams of events."""

from __future__ import annotations

import json

import pytest

from quartermaster import ConnectionFailed, errors
from sdk.tests.forms import Connect
from sdk.tests.scripted_service import Answer, ScriptedService, in_turn

EVENTS = b': a comment\n\nid: 1\nevent: first\ndata: {"a": 1}\n\ndata: {"b":\ndata: 2}\n\ndata: [DONE]\n\n'
ASKED = {"stream": True}


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
