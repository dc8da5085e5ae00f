"""The cost of a request that is refused, and the size of its error response, are limited."""

import json
import threading
import tracemalloc
from typing import Any
from uuid import uuid4

import pytest
from flask import abort
from pydantic import BaseModel, ConfigDict
from sqlalchemy import event
from werkzeug.exceptions import InternalServerError

from shared.a2a.behaviors.script_parser import parse_script
from shared.errors import FieldError, ValidationFailed
from shared.identity.access.roles import Role
from tests.support.web.web_process import Front
from web.error_responses.status_codes import answer_domain_error
from web.http.requests import (
    MAXIMUM_JSON_CONTAINERS,
    MAXIMUM_JSON_VALUES,
    MalformedJson,
    parse_json,
    read_json,
)

MEBIBYTE = 1 << 20


def test_error_for_a_million_invalid_parts_is_bounded(front: Front) -> None:
    organization = front.identity.organization()
    person = front.identity.person(organization.id)
    message = '{"message":{"messageId":"m","role":"ROLE_USER","parts":[%s]}}'
    body = (message % ",".join(['{"text":1}'] * 90_000)).encode()
    tracemalloc.start()
    answer = front.post("/message:send", person.authorization, data=body, content_type="application/json")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 400 <= answer.status_code < 500
    assert len(answer.data) < 20_000
    assert peak < 60 * MEBIBYTE, "what parsing makes of it, and nothing for each mistake"


@pytest.mark.parametrize(
    "body",
    [
        b'{"parts":[' + b",".join([b'{"text":1}'] * (MAXIMUM_JSON_CONTAINERS + 1)) + b"]}",
        b"[" + b",".join([b"[]"] * (MAXIMUM_JSON_CONTAINERS + 1)) + b"]",
        b"[" + b"1," * (MAXIMUM_JSON_VALUES + 1) + b"1]",
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_a_body_of_too_many_values_is_refused_before_it_is_parsed(body: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(MalformedJson):
        parse_json(body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * len(body) + MEBIBYTE


@pytest.mark.parametrize(
    "value",
    [
        {"text": "[{," * 2_000_000},
        {"text": '"\\[' * 100_000, "more": [[{}]] * 100},
        [["\\", '"', '\\"'] * 100] * 100,
    ],
)
def test_brackets_in_strings_do_not_count_as_structure(value: Any) -> None:
    assert parse_json(json.dumps(value).encode()) == value


def test_a_text_that_never_ends_is_refused_at_once() -> None:
    with pytest.raises(MalformedJson):
        parse_json(b"[" * 65 + b'"' + b"\\a" * MEBIBYTE)


class Strict(BaseModel):
    """A model with one field, which refuses others."""

    model_config = ConfigDict(extra="forbid")

    name: str


def test_a_request_with_thousands_of_mistakes_is_refused_as_a_whole() -> None:
    body = json.dumps({"name": "x"} | {f"unknown{number}": 1 for number in range(50_000)}).encode()
    with pytest.raises(ValidationFailed) as refused:
        read_json(body, Strict)
    assert refused.value.errors == ()
    assert "20,000" in refused.value.detail


@pytest.mark.parametrize("path", ["/files", "/v1/models", "/tasks"])
def test_error_names_twenty_fields_shortened_and_counts_the_rest(front: Front, path: str) -> None:
    errors = [FieldError(location="body", name="n" * 9000, message="m" * 9000) for _ in range(25)]
    with front.app.test_request_context(path):
        answer = answer_domain_error(ValidationFailed(errors=errors))
    text = answer.get_data(as_text=True)
    assert len(text) < 20 * 900
    body = json.loads(text)
    if path == "/files":
        assert (len(body["errors"]), body["moreErrors"]) == (20, 5)
    elif path == "/tasks":
        information, violations = body["error"]["details"]
        assert (len(violations["fieldViolations"]), information["metadata"]["moreErrors"]) == (20, "5")
    else:
        assert body["error"]["moreErrors"] == 5


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/", "/v1/nothing", "/v1/chat", "/v1//models", "/v1/files/x/content"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_unknown_path_below_v1_has_openais_error_format(front: Front, path: str, method: str) -> None:
    answer = front.ask(method, path)
    assert answer.status_code == 404
    assert answer.json is not None
    assert set(answer.json) == {"error"}
    assert answer.json["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("path", ["/files", "/v1/models"])
def test_a_failure_of_ours_is_never_called_a_malformed_request(
    front: Front, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        abort(InternalServerError.code, "a secret of ours")

    monkeypatch.setattr("web.framework.routes.authenticate", fail)
    answer = front.get(path)
    assert answer.status_code == 500
    assert "malformed_request" not in answer.text
    assert "secret" not in answer.text


def test_a_principal_selector_is_refused_beside_a_grant_too(front: Front) -> None:
    answer = front.get(
        f"/files/{uuid4()}/content?grant=svg_x", headers={"Service-Principal-Selector": str(uuid4())}
    )
    assert (answer.status_code, answer.json and answer.json["code"]) == (
        400,
        "principal_selector_not_allowed",
    )


def test_slow_script_is_parsed_outside_of_any_transaction(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise Postgres would hold a transaction and its locks while YAML is parsed."""
    organization = front.identity.organization()
    owner = front.identity.person(organization.id, Role.WORKSPACE_OWNER)
    deployment = front.identity.deployment(organization.id).deployment
    open_transactions: list[int] = []
    here = threading.get_ident()
    taken: set[int] = (
        set()
    )  # checked in the thread of the request; other threads may use connections at any time

    def counting(text: str) -> Any:
        open_transactions.append(len(taken))
        return parse_script(text)

    def take(connection: object, *_: object) -> None:
        if threading.get_ident() == here:
            taken.add(id(connection))

    def give_back(connection: object, *_: object) -> None:
        taken.discard(id(connection))

    event.listen(front.services.database.engine, "checkout", take)
    event.listen(front.services.database.engine, "checkin", give_back)
    monkeypatch.setattr("shared.a2a.behaviors.script_parser.parse_script", counting)
    script = "rules:\n  - steps:\n      - complete: done\n"
    answer = front.post(
        f"/admin/deployments/{deployment.id}/behaviors",
        owner.authorization,
        json={"name": "s", "kind": "script", "description": "d", "script": script + f"# {uuid4()}\n"},
    )
    assert answer.status_code == 201, answer.text
    assert open_transactions == [0]


def test_script_size_is_limited_to_a_second_of_parsing(front: Front) -> None:
    organization = front.identity.organization()
    owner = front.identity.person(organization.id, Role.WORKSPACE_OWNER)
    deployment = front.identity.deployment(organization.id).deployment
    answer = front.post(
        f"/admin/deployments/{deployment.id}/behaviors",
        owner.authorization,
        json={"name": "s", "kind": "script", "description": "d", "script": "x" * 360_000},
    )
    assert (answer.status_code, answer.json and answer.json["code"]) == (422, "validation_failed")
