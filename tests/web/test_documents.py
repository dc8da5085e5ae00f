"""What the service says of itself: the OpenAPI document, its viewer, and a page for every problem."""

import re
from typing import Any

import pytest

from shared.identity.errors import OAuthError
from tests.support.front import Front
from tests.web.files.asking import refuse
from web.a2a_errors import a2a_reason, a2a_status, speaks_a2a
from web.authentication import Authentication
from web.errors import STATUSES, problems
from web.openai_errors import speaks_openai
from web.routes import Route

PUBLIC = (Authentication.PUBLIC, Authentication.PREFLIGHT)
_PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>")


@pytest.fixture(scope="module")
def document(front: Front) -> Any:
    answer = front.get("/openapi.json")
    assert (answer.status_code, answer.mimetype) == (200, "application/json")
    return answer.json


def declared(front: Front) -> list[Route]:
    operations: list[Route] = front.app.extensions["routes"]
    return operations


def described(document: Any, operation: Route) -> Any:
    path = _PARAMETER.sub(lambda match: "{" + camel(match[1]) + "}", operation.path)
    return document["paths"][path][operation.method.lower()]


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def test_the_document_is_openapi_3_1(document: Any) -> None:
    assert document["openapi"].startswith("3.1.")
    assert document["servers"] == [{"url": "http://localhost"}]
    assert document["info"]["title"] == "Quartermaster"


def test_every_reference_in_the_document_leads_somewhere(document: Any) -> None:
    def references(part: Any) -> set[str]:
        if isinstance(part, dict):
            own = {part["$ref"]} if isinstance(part.get("$ref"), str) else set[str]()
            return own.union(*map(references, part.values()))
        return set[str]().union(*map(references, part)) if isinstance(part, list) else set()

    for reference in references(document):
        at = document
        for step in reference.removeprefix("#/").split("/"):
            at = at[step]


def test_every_error_an_operation_declares_is_described(front: Front, document: Any) -> None:
    for operation in declared(front):
        if operation.hidden:
            continue
        answers = described(document, operation)["responses"]
        for error in operation.errors:
            status, code = STATUSES[error.kind], error.code
            if speaks_a2a(operation.path):
                status, code = a2a_status(status, code), a2a_reason(code)
            assert str(status) in answers, (operation.path, error.code)
            if status not in operation.answers:
                assert f"`{code}`" in answers[str(status)]["description"], (operation.path, error.code)


def test_every_operation_says_how_its_caller_is_known(front: Front, document: Any) -> None:
    schemes = set(document["components"]["securitySchemes"])
    for operation in declared(front):
        if operation.hidden:
            continue
        security = described(document, operation)["security"]
        assert bool(security) is (operation.authentication not in PUBLIC)
        assert {name for choice in security for name in choice} <= schemes


def test_operation_names_are_unique(document: Any) -> None:
    names = [at["operationId"] for path in document["paths"].values() for at in path.values()]
    assert len(names) == len(set(names))


def test_every_operation_that_needs_a_caller_answers_401_without_one(front: Front) -> None:
    for operation in declared(front):
        if not operation.authentication.has_caller:
            continue
        path = operation.path.replace("<reference_kind:kind>", "Task").replace("<network:network>", "slack")
        path = path.replace("<month:month>", "2026-01")
        path = _PARAMETER.sub("01890000-0000-7000-8000-000000000000", path)
        unknown, wrong = front.ask(operation.method, path), front.ask(operation.method, path, "Bearer x")
        if speaks_a2a(path):
            details = [answer.get_json()["error"]["details"][0]["reason"] for answer in (unknown, wrong)]
            assert details == ["AUTHENTICATION_REQUIRED", "INVALID_TOKEN"]
        elif speaks_openai(path):
            codes = [(answer.status_code, answer.get_json()["error"]["code"]) for answer in (unknown, wrong)]
            assert codes == [(401, "invalid_api_key")] * 2
        elif operation.method == "HEAD":
            assert (unknown.status_code, wrong.status_code) == (401, 401)
        else:
            refuse(unknown, 401, "authentication_required")
            refuse(wrong, 401, "invalid_token")


def test_every_problem_has_a_page(front: Front) -> None:
    listing = front.get("/problems")
    assert (listing.status_code, listing.mimetype) == (200, "text/html")
    for code, status, meaning in problems():
        page = front.get(f"/problems/{code}")
        assert page.status_code == 200, code
        assert f"Status {status}." in page.text
        assert f'href="/problems/{code}"' in listing.text
        assert meaning
    assert listing.headers["Content-Security-Policy"].startswith("default-src 'none'")


def test_every_error_an_operation_declares_is_among_the_problems(front: Front) -> None:
    known = {code: status for code, status, _ in problems()}
    for operation in declared(front):
        for error in operation.errors:
            if not issubclass(error, OAuthError):
                assert known[error.code] == STATUSES[error.kind], error


def test_the_viewer_needs_nothing_from_elsewhere(front: Front) -> None:
    page = front.get("/docs")
    assert page.status_code == 200
    sources = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert sources
    for source in sources:
        assert source.startswith("/docs/")
        assert front.get(source).status_code == 200
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
