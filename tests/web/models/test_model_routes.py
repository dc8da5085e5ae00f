"""The model routes without a worker: what is parsed, what is refused, and in which order."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text
from werkzeug.test import TestResponse

from shared.credits.ledger import top_up
from shared.identity.access.authorization import OPERATOR
from shared.models import reply_timeouts
from tests.support.data.identity import Person
from tests.support.web.openapi_documents import openapi_document
from tests.support.web.web_process import Front

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
GOOD: dict[str, dict[str, Any]] = {
    CHAT: {"model": "scripted/echo", "messages": [{"role": "user", "content": "hello"}]},
    RESPONSES: {"model": "scripted/echo", "input": "hello", "store": False},
}
ENDPOINTS = pytest.mark.parametrize("path", [CHAT, RESPONSES])


@dataclass(frozen=True, kw_only=True)
class World:
    """An organization with credits, and a member."""

    front: Front
    organization_id: UUID
    member: Person

    def ask(self, path: str, **changes: Any) -> TestResponse:
        return self.front.post(path, self.member.authorization, json={**GOOD[path], **changes})

    def held(self) -> int:
        with self.front.services.database.autocommit() as session:
            found = session.execute(
                text("SELECT coalesce(sum(held), 0) FROM credit_balances WHERE organization_id = :id"),
                {"id": self.organization_id},
            )
            return int(found.scalar() or 0)


@pytest.fixture
def world(front: Front, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(reply_timeouts, "PING_SECONDS", 0.02)
    monkeypatch.setattr(reply_timeouts, "QUEUE_SECONDS", 0.1)
    monkeypatch.setattr(reply_timeouts, "IDLE_SECONDS", 0.1)
    organization_id = front.identity.organization().id
    with front.services.database.transaction() as session:
        top_up(session, organization_id=organization_id, amount=10**6, reference=str(uuid4()), actor=OPERATOR)
    return World(
        front=front,
        organization_id=organization_id,
        member=front.identity.person(organization_id, bound=True),
    )


def code_of(answer: TestResponse) -> str:
    error = answer.get_json()["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    return str(error["code"])


def test_the_catalog_is_read_with_every_field(world: World) -> None:
    listed = world.front.get("/v1/models", world.member.authorization).get_json()
    assert listed["object"] == "list"
    for entry in listed["data"]:
        one = world.front.get(f"/v1/models/{entry['id']}", world.member.authorization)
        assert one.get_json() == entry
        assert entry["usage"]["window"] == "24h"
        assert "Not a language model" in entry["description"]


def test_an_id_whose_slash_is_escaped_is_the_same_model(world: World) -> None:
    one = world.front.get("/v1/models/scripted%2Fecho", world.member.authorization)
    assert one.get_json()["id"] == "scripted/echo"


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/scripted/echo", CHAT, RESPONSES])
def test_request_without_a_credential_is_refused(front: Front, path: str) -> None:
    answer = front.post(path, json=GOOD[path]) if path in GOOD else front.get(path)
    assert (answer.status_code, code_of(answer)) == (401, "invalid_api_key")
    assert "WWW-Authenticate" in answer.headers


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/scripted/nothing", CHAT, RESPONSES])
def test_caller_without_a_payer_is_refused_first(front: Front, path: str) -> None:
    authorization = front.identity.operator().authorization
    answer = (
        front.post(path, authorization, data=b"{not json") if path in GOOD else front.get(path, authorization)
    )
    assert (answer.status_code, code_of(answer)) == (400, "billing_organization_required")


@ENDPOINTS
def test_a_body_of_another_type_is_refused(world: World, path: str) -> None:
    answer = world.front.post(path, world.member.authorization, data=b"hello", content_type="text/plain")
    assert (answer.status_code, code_of(answer)) == (415, "unsupported_media_type")


@ENDPOINTS
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'"hello"', b"[" * 100_000, b'{"a": NaN}'])
def test_a_body_that_is_no_json_object_is_refused(world: World, path: str, content: bytes) -> None:
    answer = world.front.post(path, world.member.authorization, data=content, content_type="application/json")
    assert (answer.status_code, code_of(answer)) == (400, "malformed_json")


@pytest.mark.parametrize(
    ("path", "field"), [(CHAT, "model"), (CHAT, "messages"), (RESPONSES, "model"), (RESPONSES, "input")]
)
def test_invalid_field_is_named_in_the_error(world: World, path: str, field: str) -> None:
    answer = world.ask(path, **{field: 7})
    assert answer.status_code == 400
    assert answer.get_json()["error"]["param"] == field
    assert answer.headers["x-should-retry"] == "false"


@ENDPOINTS
def test_second_model_parameter_is_refused_by_name_without_a_hold(world: World, path: str) -> None:
    answer = world.ask(path, models=["openai/o1-pro"], route="fallback")
    error = answer.get_json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_request", "models")
    assert answer.headers["x-should-retry"] == "false"
    assert world.held() == 0


@ENDPOINTS
def test_call_without_a_worker_is_refused_temporarily_and_costs_nothing(world: World, path: str) -> None:
    for stream in (False, True):
        answer = world.ask(path, stream=stream)
        assert (answer.status_code, code_of(answer)) == (503, "overloaded")
        assert int(answer.headers["Retry-After"]) >= 1
        assert "x-should-retry" not in answer.headers
    assert world.held() == 0


def test_storing_is_refused_with_a_code_that_both_routes_document(world: World) -> None:
    documented = openapi_document()["paths"]
    for path in (CHAT, RESPONSES):
        answer = world.ask(path, store=True)
        code = answer.get_json()["error"]["code"]
        assert (answer.status_code, code) == (400, "response_state_not_supported")
        assert code in str(documented[path]["post"]["responses"]["400"])


def test_response_without_store_is_refused_unless_absent_means_false(world: World) -> None:
    answer = world.front.post(
        RESPONSES, world.member.authorization, json={"model": "scripted/echo", "input": "hello"}
    )
    assert (answer.status_code, code_of(answer)) == (400, "response_state_not_supported")
    assert "store: false" in answer.get_json()["error"]["message"]


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"store": None}, "store"),
        ({"store": "false"}, "store"),
        ({"store": 0}, "store"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"previous_response_id": ""}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"conversation": {"id": "conv_1"}}, "conversation"),
        ({"background": True}, "background"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
    ],
)
def test_stateful_response_options_are_refused(world: World, changes: dict[str, Any], param: str) -> None:
    answer = world.ask(RESPONSES, **changes)
    assert (answer.status_code, code_of(answer)) == (400, "response_state_not_supported")
    assert (answer.get_json()["error"]["param"], answer.headers["x-should-retry"]) == (param, "false")
    assert world.held() == 0


def test_a_response_cannot_be_retrieved(world: World) -> None:
    for path in (f"{RESPONSES}/resp_1", f"{RESPONSES}/resp_1/input_items", f"{CHAT}/chatcmpl-1"):
        answer = world.front.get(path, world.member.authorization)
        assert (answer.status_code, answer.get_json()["error"]["type"]) == (404, "invalid_request_error")


def test_a_model_is_named_by_its_exact_id(world: World) -> None:
    for name in ("scripted/Echo", "echo", "scripted/echo ", "scripted//echo", ""):
        answer = world.ask(CHAT, model=name)
        assert (answer.status_code, code_of(answer)) == (404, "model_not_found")
    assert world.held() == 0
