"""Links and secrets appear in no repr, no log and no exception."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from quartermaster import context
from quartermaster.errors import ApiError, FieldError, NotFound, QuartermasterError
from sdk.tests.forms import Connect
from sdk.tests.scripted_service import Answer, NoAnswer, ScriptedService, in_turn, link_body, problem
from sdk.tests.test_context import make_context

SECRETS = ("svs_secret", "svk_key", "token-1", "attribution.of.request", "svg_grant")


def visible(value: object) -> str:
    return repr(value) + str(value)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def holds_a_secret(text: str) -> bool:
    return any(secret in text for secret in SECRETS)


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("failure", [NoAnswer, problem(401, "token_invalid"), problem(404, "file_not_found")])
def test_a_failure_shows_no_secret(
    service: ScriptedService, connect: Connect, failure: Any, caplog: pytest.LogCaptureFixture
) -> None:
    service.script = in_turn(failure)
    caplog.set_level(logging.DEBUG)
    for credential in (service.secret, service.key):
        client = connect(**credential, max_retries=1)
        with context.use(make_context("attribution.of.request")), pytest.raises(QuartermasterError) as caught:
            client.files.create_read_link(uuid4(), uuid4())
        # The context of an error is printed with it, so a request in it would show its headers.
        for error in chain(caught.value):
            assert not holds_a_secret(visible(error) + visible(vars(error)))
            assert type(error).__module__.startswith("quartermaster")
        assert not holds_a_secret("".join(traceback.format_exception(caught.value)))
    # Without any record the next line would hold for nothing.
    assert caplog.records
    assert not holds_a_secret(caplog.text + repr([vars(record) for record in caplog.records]))


def test_nothing_shows_a_link_or_a_credential(
    service: ScriptedService, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    service.script = in_turn(Answer(201, link_body("http://files/1/content?grant=svg_grant")))
    caplog.set_level(logging.DEBUG)
    client = connect(**service.secret)
    link = client.files.create_read_link(uuid4(), uuid4())
    assert "svg_grant" in link.url
    # The asynchronous client is wrapped (`forms.Blocking`).
    inner: Any = vars(client).get("_target", client)
    seen = [link, inner, *vars(inner).values(), inner._auth._tokens, inner._auth._tokens._token]
    assert not holds_a_secret("".join(map(visible, seen)) + caplog.text)


def test_errors_travel_between_processes() -> None:
    error = NotFound("No.", status=404, code="file_not_found", errors=[FieldError("query", "a", "is wrong")])
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, ApiError)
    assert (str(again), vars(again)) == (str(error), vars(error))
