"""The service's self-description: the OpenAPI document, its pages, and a page for every problem."""

import json
import re
import shlex
from html import escape
from typing import Any

import pytest

from shared.errors import Kind
from shared.identity.errors import OAuthError
from tests.support.files.file_requests import refuse
from tests.support.processes.collected_cases import found
from tests.support.processes.stack import wait_until
from tests.support.web.web_process import Front
from web.app import ROUTES
from web.error_responses.a2a_errors import a2a_reason, a2a_status, is_a2a_path
from web.error_responses.anthropic_errors import anthropic_status, is_anthropic_path
from web.error_responses.openai_errors import is_openai_path
from web.error_responses.status_codes import STATUSES
from web.framework.authentication import Authentication
from web.framework.routes import Route
from web.openapi.curl_commands import curl
from web.openapi.problems import list_problems
from web.openapi.reference import find_operation, operations_by_tag
from web.openapi.remedies import REMEDIES, REMEDIES_BY_KIND
from web.openapi.responses import shapes as media_shapes
from web.pages import routes as home_page

PUBLIC = (Authentication.PUBLIC, Authentication.PREFLIGHT)
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8"}
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


def test_every_reference_in_the_document_resolves(document: Any) -> None:
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
    for operation in found(declared(front)):
        if operation.hidden:
            continue
        answers = described(document, operation)["responses"]
        for error in operation.errors:
            status, code = STATUSES[error.kind], error.code
            if is_anthropic_path(operation.path):
                status = anthropic_status(status, code)
            elif is_a2a_path(operation.path):
                status, code = a2a_status(status, code), a2a_reason(code)
            assert str(status) in answers, (operation.path, error.code)
            if status not in operation.responses:
                assert f"`{code}`" in answers[str(status)]["description"], (operation.path, error.code)


def test_every_operation_documents_its_authentication(front: Front, document: Any) -> None:
    schemes = set(document["components"]["securitySchemes"])
    for operation in found(declared(front)):
        if operation.hidden:
            continue
        security = described(document, operation)["security"]
        assert bool(security) is (operation.authentication not in PUBLIC)
        assert {name for choice in security for name in choice} <= schemes


def test_operation_names_are_unique(document: Any) -> None:
    names = [at["operationId"] for path in document["paths"].values() for at in path.values()]
    assert len(names) == len(set(names))


def test_every_operation_with_a_caller_requires_authentication(front: Front) -> None:
    for operation in found(declared(front)):
        if not operation.authentication.has_caller or operation.authentication is Authentication.SESSION:
            continue  # A console page redirects to the sign-in page instead: tests/web/console/test_declarations.py.
        path = operation.path.replace("<reference_kind:kind>", "Task").replace("<network:network>", "slack")
        path = path.replace("<month:month>", "2026-01")
        path = _PARAMETER.sub("01890000-0000-7000-8000-000000000000", path)
        unknown, wrong = front.ask(operation.method, path), front.ask(operation.method, path, "Bearer x")
        if is_a2a_path(path):
            details = [answer.get_json()["error"]["details"][0]["reason"] for answer in (unknown, wrong)]
            assert details == ["AUTHENTICATION_REQUIRED", "INVALID_TOKEN"]
        elif is_openai_path(path):
            codes = [(answer.status_code, answer.get_json()["error"]["code"]) for answer in (unknown, wrong)]
            assert codes == [(401, "invalid_api_key")] * 2
        elif operation.method == "HEAD":
            assert (unknown.status_code, wrong.status_code) == (401, 401)
        else:
            refuse(unknown, 401, "authentication_required")
            refuse(wrong, 401, "invalid_token")


def test_every_code_of_an_operation_has_a_page_that_shows_the_code(front: Front, document: Any) -> None:
    listed = {
        code
        for path in document["paths"].values()
        for operation in path.values()
        for status, answer in operation["responses"].items()
        if int(status) >= 400
        for code in re.findall(r"^- `([^`]+)`:", answer["description"], re.MULTILINE)
    }
    assert len(listed) > 100
    for code in listed:
        page = front.get(f"/problems/{code}")
        assert page.status_code == 200, code
        assert f" {code.lower()}</span>" in page.text


def test_every_problem_is_in_the_index_with_meaning_and_remedy(front: Front) -> None:
    index = front.get("/problems").text
    for code, problem in found(list_problems().items()):
        page = front.get(f"/problems/{code}").text
        assert f'href="/problems/{code}"' in index
        assert f"{problem.status} {code}</span>" in page
        assert problem.meaning.endswith(".")
        assert problem.remedy.endswith(".")
        assert "<h2>Remedy</h2>" in page


def test_every_remedy_is_for_an_existing_problem() -> None:
    assert set(REMEDIES) - set(list_problems()) == set()
    assert set(REMEDIES_BY_KIND) == set(Kind)


def test_every_error_an_operation_declares_is_among_the_problems(front: Front) -> None:
    known = list_problems()
    for operation in found(declared(front)):
        for error in operation.errors:
            if not issubclass(error, OAuthError):
                assert known[error.code].status == STATUSES[error.kind], error


def test_every_operation_and_schema_has_a_page(front: Front, document: Any) -> None:
    index = front.get("/docs").text
    for path in document["paths"].values():
        for method, operation in path.items():
            assert front.get(f"/docs/{operation['operationId']}").status_code == 200
            assert method == "head" or f'href="/docs/{operation["operationId"]}"' in index
    for name in document["components"]["schemas"]:
        assert front.get(f"/docs/schemas/{name}").status_code == 200, name
    assert front.get("/docs/no_such_operation").status_code == 404
    assert front.get("/docs/schemas/None").status_code == 404


def test_an_operation_can_be_tried_by_the_command_on_its_page(front: Front, document: Any) -> None:
    found = find_operation(document, "create_grant")
    assert found is not None
    command = curl(document, found)
    assert command.split(" \\\n  ") == [
        'curl -X POST "$base/files/${fileId}/versions/${versionId}/grants"',
        '-H "Authorization: Bearer $token"',
    ]
    assert escape(command, quote=True).replace("&quot;", "&#34;") in front.get("/docs/create_grant").text
    for operations in operations_by_tag(document).values():
        for operation in operations:
            words = shlex.split(curl(document, operation).replace("\\\n", ""))
            assert words[0] == "curl"
            assert all(json.loads(word) is not None for word in words if word.startswith("{"))


def test_links_of_pages_exist(front: Front) -> None:
    # The first check opens the store and connects, which may take more than a second on a busy machine.
    wait_until(lambda: front.get("/readyz").status_code == 200, "the front is ready")
    for path in (
        "/",
        "/docs",
        "/docs/create_grant",
        "/docs/create_response",
        "/problems",
        "/problems/not_found",
    ):
        page = front.get(path, headers=BROWSER)
        assert page.mimetype == "text/html"
        for address in set(re.findall(r'(?:src|href)="(/[^"]*)"', page.text)):
            # The console redirects a browser without a session to the sign-in page.
            expected = 303 if address == "/console" else 200
            assert front.get(address, headers=BROWSER).status_code == expected, (path, address)


def test_page_loads_nothing_foreign_and_runs_no_script(front: Front) -> None:
    for path in ("/", "/docs", "/docs/create_grant", "/problems", "/problems/not_found"):
        page = front.get(path, headers=BROWSER)
        policy = page.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; style-src 'self';")
        assert "unsafe" not in policy
        assert not re.findall(r'<script|<style|\sstyle=|\son[a-z]+=|(?:src|href)="(?:https?:)?//', page.text)


def test_the_first_page_is_for_people_and_json_for_programs(front: Front) -> None:
    for accept in (BROWSER["Accept"], "text/html"):
        page = front.get("/", headers={"Accept": accept})
        assert (page.mimetype, page.headers["Vary"]) == ("text/html", "Accept")
    for accept in ("application/json", "*/*", "application/json, text/html;q=0.5"):
        answer = front.get("/", headers={"Accept": accept})
        assert answer.mimetype == "application/json"
        assert answer.json is not None
        assert answer.json["links"]["openapi"] == "http://localhost/openapi.json"
    assert front.get("/").mimetype == "application/json"


def test_each_link_of_the_home_page_leads_to_a_page(front: Front) -> None:
    wait_until(lambda: front.get("/readyz").status_code == 200, "the front is ready")
    links = set(re.findall(r'href="(/[^"#]*)"', front.get("/", headers=BROWSER).text))
    assert {"/console", "/docs", "/openapi.json", "/problems"} <= links
    statuses = {path: front.get(path, headers=BROWSER).status_code for path in links}
    assert statuses.pop("/console") == 303  # to the sign-in page
    assert set(statuses.values()) == {200}, statuses


def test_each_part_that_the_home_page_names_exists(front: Front) -> None:
    wait_until(lambda: front.get("/readyz").status_code == 200, "the front is ready")
    parts = front.get("/").get_json()["links"]
    assert {"console", "reference", "openapi"} <= parts.keys()
    statuses = {path: front.get(path.removeprefix("http://localhost")).status_code for path in parts.values()}
    # This installation has no default agent, so it has no card at the root.
    assert statuses.pop("http://localhost/.well-known/agent-card.json") == 404
    assert set(statuses.values()) <= {200, 303, 401}, statuses


@pytest.mark.parametrize("is_guide_built", [True, False])
def test_the_home_page_links_the_guide_only_if_it_is_built(
    front: Front, monkeypatch: pytest.MonkeyPatch, *, is_guide_built: bool
) -> None:
    monkeypatch.setattr(home_page, "is_guide_built", lambda: is_guide_built)
    assert ('href="/docs/guide/"' in front.get("/", headers=BROWSER).text) == is_guide_built


def test_schema_names_are_short_and_unique(document: Any) -> None:
    shapes = [
        shape
        for routes in ROUTES
        for route in routes.declared
        for content in route.responses.values()
        for shape in media_shapes(content).values()
        if shape is not None
    ]
    modules = {
        shape.__name__: {at.__module__ for at in shapes if at.__name__ == shape.__name__} for shape in shapes
    }
    assert {name: found for name, found in modules.items() if len(found) > 1} == {}
    for name in document["components"]["schemas"]:
        assert re.fullmatch(r"[A-Z][A-Za-z0-9]{1,47}", name), name


def test_every_schema_has_a_description_and_members(document: Any) -> None:
    schemas = document["components"]["schemas"]
    assert [name for name, schema in schemas.items() if not schema.get("description")] == []
    objects = {name: schema for name, schema in schemas.items() if schema.get("type") == "object"}
    assert [name for name, schema in objects.items() if not schema.get("properties")] == ["Empty"]
    token = objects["TokenBody"]
    assert set(token["required"]) == {"access_token", "expires_in", "scope"}
    assert "issued_token_type" in token["properties"]


def test_no_description_leads_into_the_source(document: Any) -> None:
    """Notes for maintainers belong into comments: a reader of the reference has no source code."""
    inside = re.compile(r"\.py\b|\b(?:docs|shared|web|workers|deploy|tests)/|\brows?\b")
    said = [text for text in find_descriptions(document) if inside.search(text)]
    assert said == []


def find_descriptions(part: Any) -> list[str]:
    inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    found = [text for at in inner for text in find_descriptions(at)]
    own = part.get("description") if isinstance(part, dict) else None
    return [own, *found] if isinstance(own, str) else found


def test_a_limit_is_described_with_its_maximum(document: Any) -> None:
    limits = {
        path: (parameter["schema"]["minimum"], parameter["schema"]["maximum"])
        for path, operations in document["paths"].items()
        for operation in operations.values()
        for parameter in operation["parameters"]
        if parameter.get("name") == "limit"
    }
    longer = {path: limits.pop(path) for path in ("/v1/models", "/files/{fileId}/versions")}
    assert set(longer.values()) == {(1, 1000)}  # Anthropic's dialect has so many; so do a file's versions
    assert len(limits) > 20
    assert set(limits.values()) == {(1, 100)}


def test_three_operations_accept_content(document: Any) -> None:
    """Agents upload and replace, distributions push media. There is no general upload."""
    takes = [
        (method, path)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if "multipart/form-data" in operation.get("requestBody", {}).get("content", {})
    ]
    assert sorted(takes) == [
        ("post", "/distributions/{distributionId}/media"),
        ("post", "/files/agent-artifacts"),
        ("put", "/files/{fileId}"),
    ]


def test_no_operation_enables_a_model_or_configures_a_provider(document: Any) -> None:
    """Only the catalog defines models; a key may be limited to some of them."""
    changes = [
        path
        for path, operations in document["paths"].items()
        if re.search("model|provider|catalog", path) and {"put", "patch", "delete"} & set(operations)
    ]
    assert changes == ["/admin/organizations/{organizationId}/api-keys/{keyId}/models"]


def test_head_is_described_wherever_get_is(document: Any) -> None:
    for path, operations in document["paths"].items():
        assert ("head" in operations) or ("get" not in operations), path
        if "get" in operations:
            assert set(operations["head"]["responses"]) == set(operations["get"]["responses"])
            assert not any("content" in answer for answer in operations["head"]["responses"].values())


def test_every_operation_with_attribution_documents_its_header(front: Front, document: Any) -> None:
    for operation in found(declared(front)):
        if not operation.hidden and operation.authentication.has_caller:
            named = {parameter.get("name") for parameter in described(document, operation)["parameters"]}
            assert "Service-Usage-Attribution" in named, operation.path


def test_every_response_with_a_body_documents_it(document: Any) -> None:
    for path, operations in document["paths"].items():
        for operation in operations.values():
            contents = [operation.get("requestBody", {}), *operation["responses"].values()]
            for content in contents:
                for media_type, shape in content.get("content", {}).items():
                    assert shape.get("schema"), (path, media_type)
