"""Extensions: activated by name, listed in every response, required if so declared, with validated data."""

from typing import Any

import jsonschema
import pytest

from shared.a2a.agents.own_extensions import OWN_EXTENSIONS
from shared.a2a.exact_json import parse
from shared.a2a.updates import DeclaredExtension
from tests.web.a2a.asking import Client, reason
from tests.web.a2a.conftest import Cast

BASE = "http://localhost/extensions"
EVENT, SCHEMA, FILE = (f"{BASE}/{name}/v1" for name in ("event", "artifact-schema", "file-artifact"))
THIRD = "https://github.com/example/tree/main/odd"
HEADER = "A2A-Extensions"


def naming(client: Client, *uris: str) -> Client:
    return Client(client.front, client.prefix, client.authorization, {HEADER: ",".join(uris)})


def active(answer: Any) -> list[str]:
    return [uri.strip() for uri in answer.headers.get(HEADER, "").split(",") if uri.strip()]


def test_activated_extensions_are_listed_in_every_response(cast: Cast) -> None:
    client = naming(cast.member, EVENT, "https://example.com/unknown/v1", FILE)
    task_id = cast.member.task("hello")["id"]
    answers = [
        client.send(),
        client.send("work", path="/message:stream"),
        client.ask("GET", f"/tasks/{task_id}"),
        client.ask("GET", "/tasks"),
        client.ask("POST", f"/tasks/{task_id}:cancel"),
        client.ask("GET", "/tasks/absent"),
        client.ask("GET", "/.well-known/agent-card.json"),
        client.ask("POST", "/message:send", data="{"),
        naming(Client(cast.front, client.prefix, "Bearer wrong", {}), EVENT, FILE).send(),
        client.ask("PUT", "/tasks"),
    ]
    assert [active(answer) for answer in answers[:-1]] == [[EVENT, FILE]] * (len(answers) - 1)
    assert HEADER not in cast.member.send().headers
    assert HEADER not in naming(cast.member, "https://example.com/unknown/v1").send().headers


def test_headers_may_repeat_and_have_their_name_of_before(cast: Cast) -> None:
    client = cast.member
    answer = client.front.client.open(
        f"{client.prefix}/tasks",
        headers=[
            ("Authorization", str(client.authorization)),
            (HEADER, f" {FILE} ,"),
            (HEADER, EVENT),
            ("X-A2A-Extensions", SCHEMA),
        ],
    )
    assert active(answer) == [FILE, EVENT, SCHEMA]


@pytest.mark.parametrize("uri", [f"{BASE}/event/v2", f"{BASE}/event", f"{BASE}/EVENT/v1", f"{EVENT}/"])
def test_another_version_or_spelling_is_another_extension(cast: Cast, uri: str) -> None:
    assert active(naming(cast.member, uri).send()) == []


def test_required_extensions_apply_to_messages_only(cast: Cast) -> None:
    _, client = cast.new_agent(
        extensions=(DeclaredExtension(uri=THIRD, description="Odd", required=True, params={"n": 2**53 + 1}),)
    )
    card = parse(client.ask("GET", "/.well-known/agent-card.json").get_data())
    declared = card["capabilities"]["extensions"][-1]
    assert declared == {"uri": THIRD, "description": "Odd", "required": True, "params": {"n": 2**53 + 1}}
    for path in ("/message:send", "/message:stream"):
        refused = client.send(path=path)
        assert (refused.status_code, reason(refused)) == (400, "EXTENSION_SUPPORT_REQUIRED")
        assert refused.get_json()["error"]["details"][0]["metadata"]["extensions"] == THIRD
        accepted = naming(client, THIRD).send(path=path)
        assert accepted.status_code == 200
        assert active(accepted) == [THIRD]
    assert client.ask("GET", "/tasks").status_code == 200


def test_dependent_extension_is_active_only_with_its_dependency(cast: Cast) -> None:
    deep = f"{THIRD}/deeper"
    _, client = cast.new_agent(
        extensions=(
            DeclaredExtension(uri=THIRD, requires=(EVENT,)),
            DeclaredExtension(uri=deep, requires=(THIRD,)),
        )
    )
    assert active(naming(client, deep, THIRD).send()) == []
    assert active(naming(client, deep, THIRD, EVENT).send()) == [deep, THIRD, EVENT]
    assert active(naming(client, deep, EVENT).send()) == [EVENT]


def test_error_and_card_name_an_extensions_dependencies(cast: Cast) -> None:
    far = "https://example.com/far/v1"
    _, client = cast.new_agent(
        extensions=(DeclaredExtension(uri=THIRD, description="Odd.", required=True, requires=(EVENT, far)),)
    )
    card = client.ask("GET", "/.well-known/agent-card.json").get_json()
    declared = {at["uri"]: at for at in card["capabilities"]["extensions"]}
    assert declared[THIRD]["description"] == f"Odd. Needs {EVENT}, {far}."
    assert [uri for uri, at in declared.items() if at.get("required")] == [EVENT, THIRD, far]
    for named, missing in (((), [EVENT, THIRD, far]), ((THIRD,), [EVENT, far]), ((THIRD, EVENT), [far])):
        error = naming(client, *named).send().get_json()["error"]
        assert error["details"][0]["metadata"]["extensions"] == ", ".join(missing)
        assert all(uri in error["message"] for uri in missing)
    assert active(naming(client, THIRD, EVENT, far).send()) == [THIRD, EVENT, far]


def test_a_behavior_may_require_an_extension_of_ours(cast: Cast) -> None:
    _, client = cast.new_agent(extensions=(DeclaredExtension(uri=EVENT, required=True),))
    assert reason(client.send()) == "EXTENSION_SUPPORT_REQUIRED"
    card = client.ask("GET", "/.well-known/agent-card.json").get_json()
    declared = next(at for at in card["capabilities"]["extensions"] if at["uri"] == EVENT)
    assert declared["required"] is True
    assert "source" in declared["description"]


GOOD_EVENT = {"type": "com.example.paid", "source": "https://shop.example/orders", "id": "4711", "more": 1.10}
GOOD_FILE = {
    "id": "0198a1b2-0000-7000-8000-000000000001",
    "versionId": "0198a1b2-0000-7000-8000-000000000002",
    "retentionExpiresAt": None,
}


@pytest.mark.parametrize(
    ("uri", "data"),
    [
        (EVENT, GOOD_EVENT),
        (SCHEMA, {"schema": "https://example.com/schemas/billing.json#Invoice"}),
        (FILE, GOOD_FILE),
    ],
)
def test_good_data_passes_untouched(cast: Cast, uri: str, data: dict[str, Any]) -> None:
    body = message(uri, data, extensions=[uri])
    answer = naming(cast.member, uri).ask("POST", "/message:send", json=body)
    assert answer.status_code == 200, answer.get_data(as_text=True)
    task = parse(answer.get_data())["task"]
    assert task["history"][0]["metadata"] == {uri: data}
    assert task["history"][0]["extensions"] == [uri]


def message(uri: str, data: object, **more: Any) -> dict[str, Any]:
    said = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}], "metadata": {uri: data}, **more}
    return {"message": said}


@pytest.mark.parametrize(
    ("uri", "data", "place"),
    [
        (EVENT, {"type": "a", "source": "b"}, "id"),
        (EVENT, {"type": "a b", "source": "b", "id": "c"}, "type"),
        (EVENT, {"type": "a", "source": 7, "id": "c"}, "source"),
        (EVENT, "text", ""),
        (EVENT, [], ""),
        (SCHEMA, {"schema": "https://example.com/without-fragment"}, "schema"),
        (SCHEMA, {"schema": "not a uri#x"}, "schema"),
        (FILE, {"id": "x", "versionId": GOOD_FILE["versionId"]}, "id"),
        (FILE, GOOD_FILE | {"byteSize": -1}, "byteSize"),
    ],
)
def test_wrong_data_of_an_activated_extension_is_refused(
    cast: Cast, uri: str, data: object, place: str
) -> None:
    refused = naming(cast.member, uri).ask("POST", "/message:send", json=message(uri, data))
    assert (refused.status_code, reason(refused)) == (400, "INVALID_PARAMS")
    violations = refused.get_json()["error"]["details"][1]["fieldViolations"]
    suffix = f".{place}" if place else ""
    assert [at["field"] for at in violations] == [f"message.metadata[{uri}]{suffix}"]
    ignored = cast.member.ask("POST", "/message:send", json=message(uri, data))
    assert ignored.status_code == 200


def test_message_must_contain_data_of_listed_extensions(cast: Cast) -> None:
    refused = naming(cast.member, EVENT).send(extensions=[EVENT])
    assert (refused.status_code, reason(refused)) == (400, "INVALID_PARAMS")
    assert cast.member.send(extensions=[EVENT]).status_code == 200


def test_data_in_parts_is_checked_too(cast: Cast) -> None:
    parts = [{"text": "x", "metadata": {FILE: {"id": "x"}}}]
    refused = naming(cast.member, FILE).send(parts=parts)
    field = refused.get_json()["error"]["details"][1]["fieldViolations"][0]["field"]
    assert field.startswith("message.parts.0.metadata[")


@pytest.mark.parametrize("name", [own.name for own in OWN_EXTENSIONS])
def test_each_extension_is_specified_at_its_uri(cast: Cast, name: str) -> None:
    page = cast.front.get(f"/extensions/{name}/v1")
    assert page.status_code == 200
    assert page.mimetype == "text/html"
    assert f"{BASE}/{name}/v1" in page.get_data(as_text=True)
    assert "{base_url}" not in page.get_data(as_text=True)
    schema = cast.front.get(f"/extensions/{name}/v1/schema.json")
    assert schema.mimetype == "application/schema+json"
    for definition in schema.get_json()["$defs"].values():
        jsonschema.Draft202012Validator.check_schema(definition)
    for absent in (f"/extensions/{name}/v2", "/extensions/other/v1", f"/extensions/{name}"):
        assert cast.front.get(absent).status_code == 404


def test_the_served_schemas_judge_as_the_service_does(cast: Cast) -> None:
    schema = cast.front.get("/extensions/event/v1/schema.json").get_json()["$defs"]["data"]
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid(GOOD_EVENT)
    assert not validator.is_valid({"type": "a b", "source": "b", "id": "c"})
    assert not validator.is_valid({"type": "a", "source": "b"})


def test_pages_of_extensions_are_listed_and_fit_a_phone(cast: Cast) -> None:
    index = cast.front.client.get("/extensions")
    pages = [index, *(cast.front.client.get(f"/extensions/{own.name}/v1") for own in OWN_EXTENSIONS)]
    for page in pages:
        text = page.get_data(as_text=True)
        assert (page.status_code, page.mimetype) == (200, "text/html")
        assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
        assert "overflow-x: auto" in text
        assert "{" not in text.split("</style>")[1].split("<body>")[0]
        assert "{base_url}" not in text
    for own in OWN_EXTENSIONS:
        assert f'<a href="{BASE}/{own.name}/v1">' in index.get_data(as_text=True)
        assert f'<a href="{BASE}">' in pages[OWN_EXTENSIONS.index(own) + 1].get_data(as_text=True)
