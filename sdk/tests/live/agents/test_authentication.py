"""Authentication of requests to an agent, and isolation of their contexts."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tests.web.files.conftest import attribution_for

from quartermaster import context as request_context
from quartermaster.agents import Agent, Extension
from quartermaster.context import RequestContext
from quartermaster.errors import ConfigurationError
from sdk.tests.agents.served import Served, message, served, text_of
from sdk.tests.live.agents.conftest import Service

ATTRIBUTION = "Service-Usage-Attribution"
REQUIRED = Extension("https://example.com/needed/v1", required=True)
OPTIONAL = Extension("https://example.com/optional/v1", params={"depth": 2})
DEPENDENT = Extension("https://example.com/dependent/v1", requires=[OPTIONAL.uri])


def who(context: RequestContext | None) -> str:
    assert request_context.current() is context
    return str(context.agent_principal) if context else "nobody"


def make_agent(service: Service, *extensions: Extension) -> Agent:
    agent = Agent("Witness", "Says for whom it works.", extensions=extensions, **service.credentials)

    @agent.skill
    def plain(context: RequestContext | None) -> str:
        return who(context)

    @agent.skill
    def steps(context: RequestContext | None) -> Iterator[str]:
        for _ in range(3):
            time.sleep(random.random() / 200)
            assert request_context.current() is context
        yield who(context)

    @agent.skill
    async def later(context: RequestContext | None) -> AsyncIterator[str]:
        for _ in range(3):
            await asyncio.sleep(random.random() / 200)
            assert request_context.current() is context
        yield who(context)

    @agent.skill
    def active(extensions: frozenset[str]) -> str:
        return " ".join(sorted(extensions))

    return agent


@pytest.fixture(scope="module")
def witness(service: Service) -> Iterator[Served]:
    with served(make_agent(service)) as witness:
        yield witness


def test_a_message_of_the_service_comes_with_its_context(service: Service, witness: Served) -> None:
    assert text_of(witness.send(headers=service.headers)) == str(service.principal.id)


def test_over_json_rpc_as_well(service: Service, witness: Served) -> None:
    answer = witness.call("SendMessage", message("x"), headers=service.headers)
    assert text_of(answer["result"]["task"]) == str(service.principal.id)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer svk_abc"}, 401),
        ({"Authorization": "Basic abc"}, 401),
        ({ATTRIBUTION: ""}, 400),
        ({ATTRIBUTION: "a.b.c"}, 401),
        ({ATTRIBUTION: "a.b.c, d.e.f"}, 400),
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/message:send", "/message:stream", "/", "/tasks"])
def test_anything_else_is_refused_at_every_path(
    service: Service, witness: Served, changes: dict[str, str], status: int, path: str
) -> None:
    method = "GET" if path == "/tasks" else "POST"
    response = witness.ask(method, path, headers={**service.headers, **changes}, json={})
    assert response.status_code == status
    assert response.json()["error"]["code"] == status
    if status == 401:
        assert response.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("name", ["Authorization", ATTRIBUTION])
def test_a_header_that_is_repeated_is_refused(service: Service, witness: Served, name: str) -> None:
    headers = [*service.headers.items(), (name, service.headers[name])]
    response = httpx.post(f"{witness.url}/message:send", headers=headers, json=message("x"))
    assert response.status_code == (401 if name == "Authorization" else 400)


def test_a_stranger_gets_the_card_and_nothing_else(witness: Served) -> None:
    card = witness.ask("GET", "/.well-known/agent-card.json").json()
    assert card["securityRequirements"] == [{"schemes": {"service": {}}}]
    for path in ("/tasks", "/tasks/1", "/extendedAgentCard", "/x/.well-known/agent-card.json", "/nowhere"):
        assert witness.ask("GET", path).status_code == 401


def test_an_attribution_of_another_deployment_is_refused(service: Service, witness: Served) -> None:
    other = service.front.identity.deployment(service.deployment.deployment.organization_id)
    value = attribution_for(
        service.front, other, service.principal.id, payer_id=other.deployment.organization_id
    )
    response = witness.ask(
        "POST", "/message:send", headers={**service.headers, ATTRIBUTION: value}, json=message("x")
    )
    assert response.status_code == 401


def test_a_message_without_attribution_is_refused_and_a_read_is_not(
    service: Service, witness: Served
) -> None:
    refused = witness.ask("POST", "/message:send", headers=service.authorization, json=message("x"))
    assert refused.status_code == 400
    task = witness.send(headers=service.headers)
    assert witness.ask("GET", f"/tasks/{task['id']}", headers=service.authorization).status_code == 200


@pytest.mark.parametrize("version", ["0.3", "1.5", "2.0", "one"])
def test_another_version_of_the_protocol_is_refused(service: Service, witness: Served, version: str) -> None:
    headers = {**service.headers, "A2A-Version": version}
    response = witness.ask("POST", "/message:send", headers=headers, json=message("x"))
    assert response.status_code == 400
    assert response.json()["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"
    assert witness.call("SendMessage", message("x"), headers=headers)["error"]["code"] == -32009


def test_contexts_do_not_leak_between_concurrent_requests(service: Service, witness: Served) -> None:
    organization = service.deployment.deployment.organization_id
    principals = [service.front.identity.principal(organization, f"p{at}").id for at in range(12)]
    headers = {
        str(at): {
            **service.headers,
            ATTRIBUTION: attribution_for(service.front, service.deployment, at, payer_id=organization),
        }
        for at in principals
    }

    def ask(turn: int) -> tuple[str, str]:
        principal = str(principals[turn % len(principals)])
        skill = ("plain", "steps", "later")[turn % 3]
        task = witness.send(more={"metadata": {"skillId": skill}}, headers=headers[principal])
        return principal, text_of(task)

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(ask, range(72)))
    assert [said for _, said in answers] == [expected for expected, _ in answers]
    assert request_context.current() is None


def test_extensions_are_activated_where_they_are_declared_and_echoed(service: Service) -> None:
    with served(make_agent(service, OPTIONAL, DEPENDENT), service.headers) as witness:

        def ask(asked: str, path: str = "/message:send") -> httpx.Response:
            body = message("x", metadata={"skillId": "active"})
            return witness.ask("POST", path, headers={**service.headers, "A2A-Extensions": asked}, json=body)

        unknown = "https://example.com/optional/v2"
        response = ask(f"{DEPENDENT.uri}, {unknown},{OPTIONAL.uri}")
        assert response.headers["A2A-Extensions"] == f"{DEPENDENT.uri}, {OPTIONAL.uri}"
        assert text_of(response.json()["task"]) == f"{DEPENDENT.uri} {OPTIONAL.uri}"
        assert ask(OPTIONAL.uri, "/message:stream").headers["A2A-Extensions"] == OPTIONAL.uri
        assert "A2A-Extensions" not in ask(DEPENDENT.uri).headers
        missing = witness.ask(
            "GET", "/tasks/none", headers={**service.headers, "A2A-Extensions": OPTIONAL.uri}
        )
        assert (missing.status_code, missing.headers["A2A-Extensions"]) == (404, OPTIONAL.uri)
        card = witness.ask("GET", "/.well-known/agent-card.json").json()
        declared = {at["uri"]: at for at in card["capabilities"]["extensions"]}
        assert declared[OPTIONAL.uri]["params"] == {"depth": 2}
        assert f"{service.front.settings.base_url}/extensions/file-artifact/v1" in declared


def test_a_required_extension_is_named_where_it_is_missing(service: Service) -> None:
    with served(make_agent(service, OPTIONAL, REQUIRED), service.headers) as witness:
        response = witness.ask("POST", "/message:send", json=message("x"))
        assert response.status_code == 400
        (detail,) = response.json()["error"]["details"]
        assert detail["reason"] == "EXTENSION_SUPPORT_REQUIRED"
        assert detail["metadata"]["extensions"] == REQUIRED.uri
        assert witness.call("SendMessage", message("x"))["error"]["code"] == -32008
        assert witness.ask("GET", "/tasks").status_code == 200
        witness.send(headers={**service.headers, "A2A-Extensions": REQUIRED.uri})


def test_an_agent_that_cannot_reach_the_service_asks_for_patience(service: Service) -> None:
    away = {**service.credentials, "base_url": "http://127.0.0.1:9"}
    agent = Agent("Alone", "Has no service.", **away)
    agent.skill(who_is_there)
    with served(agent, service.headers) as alone:
        response = alone.ask("POST", "/message:send", json=message("x"))
    assert response.status_code == 503
    assert response.headers["Retry-After"]


def test_an_agent_needs_a_deployments_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLIENT_ID", "CLIENT_SECRET"):
        monkeypatch.delenv(f"SERVICE_{name}", raising=False)
    monkeypatch.setenv("SERVICE_BASE_URL", "http://127.0.0.1:9")
    agent = Agent("Poor", "Has no secret.")
    agent.skill(who_is_there)
    with pytest.raises(ConfigurationError):
        agent.app()
    monkeypatch.setenv("SERVICE_API_KEY", "svk_1")
    with pytest.raises(ConfigurationError):
        agent.app()


def who_is_there() -> str:
    return "nobody"
