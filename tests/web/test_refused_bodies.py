"""Every operation with a JSON body refuses an invalid body as the OpenAPI document says.

The test client validates status and code of each response against the document, so an undeclared response fails here.
"""

from typing import Any

import pytest

from tests.support.web.openapi_documents import openapi_document
from tests.web.test_cross_organization import World, world
from web.app import ROUTES
from web.http.wire_types import CamelModel

__all__ = ["world"]

JSON = "application/json"
OPERATIONS = {
    operation["operationId"]: (method.upper(), path)
    for path, methods in openapi_document()["paths"].items()
    for method, operation in methods.items()
    if JSON in operation.get("requestBody", {}).get("content", {})
}
SIGNED = {"receive_webhook", "receive_payment_event"}
"""An unsigned body is refused before it is read."""
REFUSED: dict[str, tuple[dict[str, Any], set[int]]] = {
    "malformed JSON": ({"data": b'{"a": ', "content_type": JSON}, {400}),
    "a key that stands twice": ({"data": b'{"a": 1, "a": 2}', "content_type": JSON}, {400}),
    "bytes that are not UTF-8": ({"data": b'{"a": "\xff"}', "content_type": JSON}, {400}),
    "another media type": ({"data": b"<a/>", "content_type": "text/xml"}, {400, 415}),
    "a list": ({"json": []}, {400, 422}),
    "a number": ({"json": 7}, {400}),
    "null": ({"data": b"null", "content_type": JSON}, {400}),
    "an unknown member": ({"json": {"noSuchMember": 1}}, {400, 422}),
    "a member of the wrong type": ({"json": {"name": {}, "url": [], "model": 7, "message": 7}}, {400, 422}),
    "no body": ({}, {400, 415}),
    "an empty body": ({"data": b"", "content_type": JSON}, {400}),
    "a body announced as too large": (
        {"data": b"{}", "content_type": JSON, "environ_overrides": {"CONTENT_LENGTH": str(1 << 40)}},
        {413},
    ),
}


def bearer_of(world: World, name: str) -> dict[str, str]:
    """Return the credentials with which an operation reads its body."""
    own = OPERATIONS[name][1].startswith("/distributions/") and not name.startswith("retry_")
    return world.insiders["distribution" if own else "owner"]


@pytest.mark.parametrize("name", sorted({*OPERATIONS} - SIGNED))
def test_a_body_of_the_wrong_form_is_refused_as_declared(world: World, name: str) -> None:
    method, template = OPERATIONS[name]
    is_rpc = name.startswith("call_")
    for form, (sent, statuses) in REFUSED.items():
        answer = world.front.client.open(
            world.path(template), method=method, headers=bearer_of(world, name), buffered=True, **sent
        )
        refused = answer.status_code in statuses or (is_rpc and "error" in answer.get_json())
        assert refused, (form, answer.status_code, answer.text)


@pytest.mark.parametrize("name", sorted(SIGNED & {*OPERATIONS}))
def test_unsigned_body_is_not_read(world: World, name: str) -> None:
    method, template = OPERATIONS[name]
    for form, (sent, _) in REFUSED.items():
        answer = world.front.client.open(world.path(template), method=method, buffered=True, **sent)
        assert answer.status_code == (413 if form == "a body announced as too large" else 401)


def test_every_route_with_a_body_of_our_own_is_asked() -> None:
    declared = {route.name for routes in ROUTES for route in routes.declared if _is_own(route.body)}
    assert declared <= {*OPERATIONS} - SIGNED


def _is_own(body: object) -> bool:
    return isinstance(body, type) and issubclass(body, CamelModel)
