"""Retries: repeatable requests with the same operation id, others only if they had no effect."""

from __future__ import annotations

import socket
from typing import Any
from uuid import uuid4

import pytest

from quartermaster import _retries, errors
from quartermaster._retries import RequestFailure, retry_delay_seconds
from quartermaster.errors import ApiError
from sdk.tests.forms import Connect
from sdk.tests.scripted_service import (
    Answer,
    NoAnswer,
    ScriptedService,
    file_body,
    in_turn,
    link_body,
    problem,
    upload_body,
)

pytestmark = pytest.mark.usefixtures("short_pauses")
FILE, VERSION = uuid4(), uuid4()
PASSING = [
    problem(503, "unavailable"),
    problem(502, "bad_gateway"),
    problem(500, "internal_error"),
    problem(504, "timeout"),
    problem(429, "rate_limited"),
    problem(409, "operation_in_progress"),
    NoAnswer,
    Answer(body=b"x" * 1000, cut_at=10),
]
LASTING = [
    (400, "malformed_request"),
    (403, "permission_denied"),
    (404, "file_not_found"),
    (409, "operation_conflict"),
]


@pytest.mark.parametrize("failure", PASSING)
def test_an_upload_is_repeated_with_the_same_operation_and_content(
    service: ScriptedService, connect: Connect, failure: Any
) -> None:
    service.script = in_turn(failure, Answer(201, upload_body(b"content")))
    # An iterable can be read only once, and the second attempt must still have all of it.
    connect(**service.key).files.upload(iter([b"con", b"tent"]), file_name="a")
    first, second = service.requests
    assert first.query == second.query
    assert first.body == second.body


def test_another_upload_is_another_operation(service: ScriptedService, connect: Connect) -> None:
    service.script = in_turn(Answer(201, upload_body(b"content")))
    client = connect(**service.key)
    for _ in range(2):
        client.files.upload(b"content", file_name="a")
    assert len({request.query["operationId"] for request in service.requests}) == 2


@pytest.mark.parametrize(("status", "code"), LASTING)
def test_a_refusal_that_lasts_is_raised_at_once(
    service: ScriptedService, connect: Connect, status: int, code: str
) -> None:
    service.script = in_turn(problem(status, code))
    with pytest.raises(ApiError) as caught:
        connect(**service.key).files.get(FILE)
    assert (caught.value.status, caught.value.code, caught.value.request_id) == (status, code, "request-1")
    assert len(service.requests) == 1


@pytest.mark.parametrize(
    "lost",
    [
        NoAnswer,
        Answer(body=b"x" * 1000, cut_at=10),
        problem(502, "bad_gateway"),
        problem(500, "internal_error"),
    ],
)
def test_what_was_removed_by_an_attempt_whose_answer_was_lost_is_removed(
    service: ScriptedService, connect: Connect, lost: Any
) -> None:
    client = connect(**service.key)
    # A 503 between must not make the client forget that the first attempt may have succeeded.
    service.script = in_turn(lost, problem(503, "unavailable"), problem(404, "reference_not_found"))
    client.files.remove_reference(FILE, ("Task", "1"))
    service.script = in_turn(lost, problem(404, "budget_not_found"))
    assert client.raw.request("DELETE", "/admin/budgets/1") is None
    assert {at.method for at in service.requests} == {"DELETE"}


def test_what_was_never_there_cannot_be_removed(service: ScriptedService, connect: Connect) -> None:
    client = connect(**service.key)
    service.script = in_turn(problem(503, "unavailable"), problem(404, "reference_not_found"))
    with pytest.raises(errors.NotFound):
        client.files.remove_reference(FILE, ("Task", "1"))
    with pytest.raises(errors.NotFound):
        client.raw.request("DELETE", "/admin/budgets/1")


def test_404_after_a_lost_response_is_an_error_except_for_removals(
    service: ScriptedService, connect: Connect
) -> None:
    client = connect(**service.key)
    service.script = in_turn(NoAnswer, problem(404, "file_not_found"))
    with pytest.raises(errors.NotFound):
        client.files.get(FILE)
    service.script = in_turn(NoAnswer, problem(404, "budget_not_found"))
    with pytest.raises(errors.NotFound):
        client.raw.request("PUT", "/admin/budgets/1", json={})


def test_a_link_is_not_made_twice_when_the_answer_is_lost(service: ScriptedService, connect: Connect) -> None:
    service.script = in_turn(NoAnswer, Answer(201, link_body("http://files/1?grant=svg_1")))
    with pytest.raises(errors.ConnectionFailed):
        connect(**service.key).files.create_read_link(FILE, VERSION)
    assert len(service.requests) == 1


def test_a_link_is_asked_for_again_when_none_was_made(service: ScriptedService, connect: Connect) -> None:
    service.script = in_turn(
        problem(503, "unavailable"), Answer(201, link_body("http://files/1?grant=svg_1"))
    )
    connect(**service.key).files.create_read_link(FILE, VERSION)
    assert len(service.requests) == 2


def test_retries_end(service: ScriptedService, connect: Connect) -> None:
    service.script = in_turn(problem(503, "unavailable"))
    with pytest.raises(errors.ServerError):
        connect(**service.key, max_retries=2).files.get(FILE)
    assert len(service.requests) == 3


def test_nobody_there_is_a_failed_connection(connect: Connect) -> None:
    # A port that was free a moment ago; no server listens there after the block.
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(errors.ConnectionFailed, match="ConnectError"):
        connect(base_url=f"http://127.0.0.1:{port}", api_key="k", max_retries=1).files.get(FILE)


def test_what_the_service_calls_final_is_not_repeated(service: ScriptedService, connect: Connect) -> None:
    service.script = in_turn(
        problem(503, "overdrawn", **{"X-Should-Retry": "false"}), Answer(body=file_body())
    )
    with pytest.raises(errors.ServerError):
        connect(**service.key).files.get(FILE)


def test_pauses_grow_to_a_bound_and_never_fall_below_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    # The fixture `short_pauses` of this module lowers it.
    monkeypatch.setattr(_retries, "SHORTEST_SECONDS", 0.5)

    def pause(retries: int, retry_after: float | None = None) -> float | None:
        failure = ApiError("No.", status=503, code="unavailable", retry_after=retry_after)
        return retry_delay_seconds(failure, retries_so_far=retries, max_retries=9, is_repeatable=True)

    for retries, longest in enumerate((0.5, 1, 2, 4, 8, 8)):
        seconds = pause(retries)
        assert seconds is not None
        assert longest * 0.75 <= seconds <= longest
    assert pause(0, retry_after=5) == 5
    assert pause(0, retry_after=3600) is None


def test_what_was_never_sent_may_always_be_repeated() -> None:
    for was_sent in (True, False):
        pause = retry_delay_seconds(
            RequestFailure("", was_sent=was_sent), retries_so_far=0, max_retries=1, is_repeatable=False
        )
        assert (pause is None) == was_sent


def test_a_page_of_a_proxy_is_an_error_too(service: ScriptedService, connect: Connect) -> None:
    service.script = in_turn(Answer(502, b"<html>Bad gateway</html>"))
    with pytest.raises(errors.ServerError) as caught:
        connect(**service.key, max_retries=0).files.get(FILE)
    assert caught.value.code == "http_502"
