"""Anthropic's dialect over HTTP: credentials, errors, token counts, and the catalog in its format."""

from typing import Any

import pytest
from werkzeug.test import TestResponse

from shared.credits.tables import invocations
from tests.support.web.web_process import Front
from tests.web.models.test_model_routes import World, world

__all__ = ["world"]

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
PROMPT: dict[str, Any] = {"model": "scripted/echo", "messages": [{"role": "user", "content": "hello"}]}
ASK = {**PROMPT, "max_tokens": 9}
GOOD = {MESSAGES: ASK, COUNT: PROMPT}
BOTH = pytest.mark.parametrize("path", [MESSAGES, COUNT])
VERSION = {"anthropic-version": "2023-06-01"}


def ask(world: World, path: str, body: Any = None, **headers: str) -> TestResponse:
    sent = {"Authorization": world.member.authorization, **headers}
    return world.front.client.post(path, json=GOOD[path] if body is None else body, headers=sent)


def refusal(answer: TestResponse) -> tuple[int, str, str]:
    body = answer.get_json()
    assert body["type"] == "error"
    assert body["request_id"] == answer.headers["request-id"] == answer.headers["X-Request-Id"]
    return answer.status_code, body["error"]["type"], body["error"]["code"]


@BOTH
def test_request_without_a_credential_is_refused(front: Front, path: str) -> None:
    answer = front.client.post(path, json=GOOD[path])
    assert refusal(answer) == (401, "authentication_error", "invalid_api_key")
    answer = front.client.post(path, json=GOOD[path], headers={"x-api-key": "svk_wrong"})
    assert refusal(answer) == (401, "authentication_error", "invalid_api_key")


def test_a_key_may_stand_in_the_header_of_anthropics_clients(world: World) -> None:
    key = world.member.authorization.removeprefix("Bearer ")
    answer = world.front.client.post(COUNT, json=PROMPT, headers={"x-api-key": key})
    assert answer.status_code == 200
    listed = world.front.client.get("/v1/models", headers={"x-api-key": key})
    assert listed.status_code == 200


def test_the_bearer_counts_where_both_headers_are_sent(world: World) -> None:
    assert ask(world, COUNT, **{"x-api-key": "svk_wrong"}).status_code == 200


def test_the_header_opens_no_other_route(world: World) -> None:
    key = world.member.authorization.removeprefix("Bearer ")
    chat = {"model": "scripted/echo", "messages": [{"role": "user", "content": "hello"}]}
    answer = world.front.client.post("/v1/chat/completions", json=chat, headers={"x-api-key": key})
    assert answer.status_code == 401


def test_versions_and_beta_headers_are_accepted(world: World) -> None:
    named = {**VERSION, "anthropic-beta": "context-management-2025-06-27"}
    assert ask(world, COUNT, **named).status_code == 200
    headers = {"Authorization": world.member.authorization}
    answer = world.front.client.post(f"{COUNT}?beta=true", json=PROMPT, headers=headers)
    assert answer.status_code == 200
    answer = world.front.client.post(f"{COUNT}?gamma=true", json=PROMPT, headers=headers)
    assert refusal(answer) == (400, "invalid_request_error", "unknown_parameter")


def test_counting_prompt_tokens_is_free(world: World) -> None:
    few, many = ask(world, COUNT), ask(world, COUNT, {**PROMPT, "system": "word " * 200})
    assert few.get_json().keys() == {"input_tokens"}
    assert many.get_json()["input_tokens"] >= few.get_json()["input_tokens"] + 250
    assert few.headers["request-id"] == few.headers["X-Request-Id"]
    with world.front.services.database.transaction() as session:
        assert session.execute(invocations.select().limit(1)).first() is None
    assert world.held() == 0


@BOTH
def test_a_model_that_is_not_there_is_refused_for_good(world: World, path: str) -> None:
    answer = ask(world, path, {**GOOD[path], "model": "scripted/nothing"})
    assert refusal(answer) == (404, "not_found_error", "model_not_found")
    assert answer.headers["x-should-retry"] == "false"


@BOTH
def test_unsupported_feature_is_named_in_the_error(world: World, path: str) -> None:
    answer = ask(world, path, {**GOOD[path], "mcp_servers": []})
    assert refusal(answer) == (400, "invalid_request_error", "invalid_request")
    assert answer.get_json()["error"]["message"] == "mcp_servers: is not supported here."


def test_untranslatable_request_is_refused_before_the_hold(world: World) -> None:
    answer = ask(world, MESSAGES, {**ASK, "model": "scripted/echo-responses", "stop_sequences": ["END"]})
    assert refusal(answer) == (400, "invalid_request_error", "invalid_request")
    assert world.held() == 0


@BOTH
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"a": NaN}'])
def test_a_body_that_is_no_json_object_is_refused(world: World, path: str, content: bytes) -> None:
    headers = {"Authorization": world.member.authorization}
    answer = world.front.client.post(path, data=content, headers=headers, content_type="application/json")
    assert refusal(answer) == (400, "invalid_request_error", "malformed_json")


def test_call_without_a_worker_is_refused_temporarily_and_costs_nothing(world: World) -> None:
    for stream in (False, True):
        answer = ask(world, MESSAGES, {**ASK, "stream": stream})
        assert refusal(answer) == (529, "overloaded_error", "overloaded")
        assert int(answer.headers["Retry-After"]) >= 1
        assert "x-should-retry" not in answer.headers
    assert world.held() == 0


def test_unknown_path_has_the_dialects_error_format(world: World) -> None:
    answer = world.front.client.post("/v1/messages/batches", json={})
    assert refusal(answer) == (404, "not_found_error", "not_found")


def test_the_catalog_has_the_shape_that_is_asked_for(world: World) -> None:
    headers = {"Authorization": world.member.authorization}
    plain = world.front.client.get("/v1/models", headers=headers).get_json()
    assert plain["object"] == "list"
    listed = world.front.client.get("/v1/models?limit=1000", headers=headers | VERSION).get_json()
    callable_ = [m["id"] for m in plain["data"] if "messages" in m["supported_endpoints"]]
    assert [model["id"] for model in listed["data"]] == callable_
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == (callable_[0], callable_[-1], False)
    one = world.front.client.get("/v1/models/scripted/echo", headers=headers | VERSION).get_json()
    assert one == next(model for model in listed["data"] if model["id"] == "scripted/echo")
    assert (one["type"], one["display_name"], one["lifecycle"]) == ("model", "Scripted echo", "active")


def test_catalog_is_paged_with_a_limit(world: World) -> None:
    headers = {"Authorization": world.member.authorization}
    ids = [
        model["id"]
        for model in world.front.client.get("/v1/models?limit=1000", headers=headers | VERSION).get_json()[
            "data"
        ]
    ]
    read: list[str] = []
    after = ""
    while True:
        page = world.front.client.get(f"/v1/models?limit=2{after}", headers=headers | VERSION).get_json()
        read += [model["id"] for model in page["data"]]
        after = f"&after_id={page['last_id']}"
        if not page["has_more"]:
            break
    assert read == ids
    before = world.front.client.get(
        f"/v1/models?limit=1&before_id={ids[-1]}", headers=headers | VERSION
    ).get_json()
    assert [model["id"] for model in before["data"]] == [ids[-2]]
    assert before["has_more"] is (len(ids) > 2)
    answer = world.front.client.get("/v1/models?limit=1", headers=headers)
    assert [model["id"] for model in answer.get_json()["data"]] == ids[:1]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models?limit=many"),
        ("POST", "/v1/messages?beta=no"),
        ("POST", "/v1/messages/count_tokens?beta=no"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused_as_documented(
    world: World, method: str, path: str
) -> None:
    # The test client validates each response against the OpenAPI document.
    options = {"json": PROMPT} if method == "POST" else {}
    answer = world.front.ask(method, path, world.member.authorization, **options)
    assert answer.status_code == 422
