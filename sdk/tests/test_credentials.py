"""Credentials: the secret is sent to the token endpoint only, and all tasks share one token."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

import pytest

from quartermaster import Client, _tokens, errors
from sdk.tests.forms import Connect
from sdk.tests.scripted_service import (
    TOKEN_PATH,
    Answer,
    NoAnswer,
    Request,
    ScriptedService,
    file_body,
    in_turn,
    problem,
    upload_body,
)

pytestmark = pytest.mark.usefixtures("short_pauses")
FILE = uuid4()


@pytest.fixture
def always_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every token due for a refresh immediately."""
    monkeypatch.setattr(_tokens, "REFRESH_BEFORE_SECONDS", 1e9)
    monkeypatch.setattr(_tokens, "REFRESH_BEFORE_SHARE", 1.0)
    # Otherwise the second request would not try to refresh at all.
    monkeypatch.setattr(_tokens, "FAILED_REFRESH_PAUSE_SECONDS", 0.0)


def test_a_secret_is_exchanged_once_and_sent_nowhere_else(service: ScriptedService, connect: Connect) -> None:
    client = connect(**service.secret)
    for _ in range(3):
        client.files.get(FILE)
    assert service.counted()[TOKEN_PATH] == 1
    assert parse_qs(service.requests[0].body.decode()) == {
        "grant_type": ["client_credentials"],
        "client_id": ["client-1"],
        "client_secret": ["svs_secret"],
    }
    assert {request.headers["authorization"] for request in service.asked()} == {"Bearer token-1"}
    assert "svs_secret" not in repr(service.asked())


def test_an_api_key_is_sent_as_it_is_and_never_exchanged(service: ScriptedService, connect: Connect) -> None:
    connect(**service.key).files.get(FILE)
    assert [request.headers["authorization"] for request in service.requests] == ["Bearer svk_key"]


@pytest.mark.usefixtures("always_early")
def test_a_token_is_exchanged_again_before_its_end(service: ScriptedService, connect: Connect) -> None:
    client = connect(**service.secret)
    client.files.get(FILE)
    client.files.get(FILE)
    assert [request.headers["authorization"] for request in service.asked()] == [
        "Bearer token-1",
        "Bearer token-2",
    ]


@pytest.mark.usefixtures("always_early")
def test_a_token_serves_to_its_end_while_the_token_endpoint_is_down(
    service: ScriptedService, connect: Connect
) -> None:
    service.exchange = in_turn(service.new_token(), problem(503, "server_error"))
    client = connect(**service.secret, max_retries=0)
    client.files.get(FILE)
    client.files.get(FILE)
    assert [request.headers["authorization"] for request in service.asked()] == ["Bearer token-1"] * 2
    assert service.counted()[TOKEN_PATH] == 2


def test_everybody_waits_for_one_exchange(service: ScriptedService, connect: Connect) -> None:
    client = connect(**service.secret)
    at_once(lambda: client.files.get(FILE))
    assert service.counted()[TOKEN_PATH] == 1


def test_a_refused_token_is_exchanged_once_for_everybody(service: ScriptedService, connect: Connect) -> None:
    client = connect(**service.secret)
    client.files.get(FILE)
    service.script = accept_only("Bearer token-2")
    at_once(lambda: client.files.get(FILE))
    assert service.counted()[TOKEN_PATH] == 2


def test_a_second_refusal_is_the_answer(service: ScriptedService, connect: Connect) -> None:
    service.script = accept_only("Bearer never")
    with pytest.raises(errors.Unauthenticated) as caught:
        connect(**service.secret).files.get(FILE)
    assert caught.value.code == "token_invalid"
    assert len(service.asked()) == 2


def test_an_upload_is_sent_again_whole_after_a_refused_token(
    service: ScriptedService, connect: Connect
) -> None:
    service.script = in_turn(problem(401, "token_invalid"), Answer(201, upload_body(b"content")))
    connect(**service.secret).files.upload(b"content", file_name="a")
    first, second = service.asked()
    assert b"content" in second.body
    assert first.body == second.body
    assert first.query == second.query


def test_an_upload_whose_refusal_was_lost_is_sent_again_with_another_token(
    service: ScriptedService, connect: Connect
) -> None:
    """An early 401 is often lost with the connection while content is still being sent."""

    def refuse_unheard(request: Request) -> Answer:
        if request.headers["authorization"] == "Bearer token-1":
            raise NoAnswer
        return Answer(201, upload_body(b"content"))

    service.script = refuse_unheard
    connect(**service.secret, max_retries=1).files.upload(b"content", file_name="a")
    assert service.counted()[TOKEN_PATH] == 2


def test_a_read_that_was_cut_keeps_its_token(service: ScriptedService, connect: Connect) -> None:
    service.script = in_turn(NoAnswer, Answer(body=file_body()))
    connect(**service.secret).files.get(FILE)
    assert service.counted()[TOKEN_PATH] == 1


def test_a_refused_api_key_is_not_tried_again(service: ScriptedService, connect: Connect) -> None:
    service.script = accept_only("Bearer never")
    with pytest.raises(errors.Unauthenticated):
        connect(**service.key).files.get(FILE)
    assert len(service.requests) == 1


def test_a_wrong_secret_is_said_at_once(service: ScriptedService, connect: Connect) -> None:
    service.exchange = in_turn(Answer(401, {"error": "invalid_client", "error_description": "Wrong."}))
    with pytest.raises(errors.Unauthenticated) as caught:
        connect(**service.secret).files.get(FILE)
    assert (caught.value.code, caught.value.message) == ("invalid_client", "Wrong.")
    assert len(service.requests) == 1


def test_the_token_endpoint_is_asked_again_when_it_fails(service: ScriptedService, connect: Connect) -> None:
    service.exchange = in_turn(problem(503, "server_error"), service.new_token())
    connect(**service.secret).files.get(FILE)
    assert service.counted()[TOKEN_PATH] == 2


def test_the_environment_says_what_is_not_given(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_BASE_URL", f"{service.url}/")
    # A variable that a shell read from a file may end with a line break.
    monkeypatch.setenv("SERVICE_API_KEY", "svk_from_environment\n")
    with Client() as client:
        client.files.get(FILE)
    monkeypatch.setenv("SERVICE_CLIENT_ID", "client-2")
    monkeypatch.setenv("SERVICE_CLIENT_SECRET", "svs_2")
    with Client() as client:
        client.files.get(FILE)
    assert [at.headers["authorization"] for at in service.asked()] == [
        "Bearer svk_from_environment",
        "Bearer token-1",
    ]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"base_url": "http://files"},
        {"base_url": "http://files", "client_id": "x"},
        {"base_url": "http://files", "api_key": "x", "client_id": "x", "client_secret": "x"},
        {"base_url": "files", "api_key": "x"},
        {"base_url": "ftp://files", "api_key": "x"},
        {"base_url": "http://name:password@files", "api_key": "x"},
        {"base_url": "http://files?a=b", "api_key": "x"},
    ],
)
def test_half_a_configuration_is_refused_before_anything_is_sent(
    options: dict[str, str], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BASE_URL", "API_KEY", "CLIENT_ID", "CLIENT_SECRET"):
        monkeypatch.delenv(f"SERVICE_{name}", raising=False)
    with pytest.raises(errors.ConfigurationError) as caught:
        connect(**options)
    # One of the addresses holds a password, and errors are logged.
    assert "password" not in str(caught.value)


def accept_only(authorization: str) -> Callable[[Request], Answer]:
    def answer(request: Request) -> Answer:
        if request.headers["authorization"] == authorization:
            return Answer(body=file_body())
        return problem(401, "token_invalid")

    return answer


def at_once(call: Callable[[], Any], times: int = 16) -> None:
    with ThreadPoolExecutor(times) as pool:
        for done in [pool.submit(call) for _ in range(times)]:
            done.result()
