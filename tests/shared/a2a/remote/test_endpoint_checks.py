"""Checking an endpoint: what a card says is kept, and what is wrong is said plainly."""

from collections.abc import Iterator
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet

from shared.a2a.agents.card_documents import MAX_CARD_BYTES
from shared.a2a.remote.cards.endpoint_check import check_endpoint
from shared.a2a.remote.endpoints import Binding, Credential
from shared.db.database import Database
from shared.identity.access.authorization import OPERATOR
from tests.shared.a2a.remote.agents import BINDINGS, CARD, RawAgent, answers, sdk_agent
from tests.shared.a2a.remote.installations import Installation, make_installation
from tests.support.data.identity import make_settings
from tests.support.data.media_sources import cut_off, endless, redirect
from tests.support.processes.stack import free_port


@pytest.fixture
def installation(database: Database) -> Installation:
    return make_installation(database)


@pytest.fixture
def agent() -> Iterator[RawAgent]:
    with RawAgent() as server:
        server.serve(CARD, answers(server.card(), ETag='"1"'))
        server.serve("/tasks", answers({"tasks": [], "nextPageToken": "", "pageSize": 1, "totalSize": 0}))
        yield server


@pytest.mark.parametrize("bindings", [BINDINGS, BINDINGS[::-1], BINDINGS[:1], BINDINGS[1:]])
def test_sdk_server_is_usable_in_its_cards_preferred_binding(
    installation: Installation, bindings: tuple[str, ...]
) -> None:
    with sdk_agent(*bindings) as url:
        report = installation.check(url)
        assert (report.is_usable, report.warnings) == (True, [])
        expected = {"HTTP+JSON": (Binding.HTTP_JSON, url), "JSONRPC": (Binding.JSONRPC, f"{url}/rpc")}
        endpoint = installation.endpoint()
        assert (endpoint.binding, endpoint.interface_url) == expected[bindings[0]]
        assert (endpoint.streams, endpoint.has_list_tasks) == (True, True)
        assert report.endpoint.problem is None
        assert report.endpoint.checked_at is not None


@pytest.mark.parametrize("binding", BINDINGS)
def test_a_server_that_refuses_our_credentials_is_told_of(installation: Installation, binding: str) -> None:
    with sdk_agent(binding, is_locked=True) as url:
        assert installation.fault(url) == "credential_refused"
        wrong = Credential(header="X-API-Key", value="wrong")
        assert installation.fault(url, credential=wrong) == "credential_refused"
        right = Credential(header="X-API-Key", value="right")
        assert installation.check(url, credential=right).is_usable


def test_check_sends_a_request_token_and_the_credential(installation: Installation, agent: RawAgent) -> None:
    installation.check(agent.url, credential=Credential(header="X-API-Key", value="right"))
    sent = agent.headers_of("/tasks")
    assert (sent["x-api-key"], sent["a2a-version"]) == ("right", "1.0")
    published: Any = installation.factory.keys.jwks()
    token = jwt.decode(
        sent["authorization"].removeprefix("Bearer "), KeySet.import_key_set(published), ["ES256"]
    )
    assert token.claims["aud"] == str(installation.deployment_id)
    assert "authorization" not in agent.headers_of(CARD)


def test_nobody_listens(installation: Installation) -> None:
    assert installation.fault(f"http://127.0.0.1:{free_port()}") == "unreachable"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"supportedInterfaces": None, "protocolVersion": "0.3.0", "url": "http://x"}, "protocol_too_old"),
        ({"supportedInterfaces": None, "url": "http://x"}, "protocol_too_old"),
        ({"name": None}, "card_incomplete"),
        ({"supportedInterfaces": []}, "card_incomplete"),
        ({"version": 3}, "card_incomplete"),
        ({"capabilities": "all"}, "card_incomplete"),
        ({"name": "\x00"}, "card_not_json"),
        ({"name": "\ud800"}, "card_not_json"),
    ],
)
def test_a_card_that_cannot_be_used_is_told_of(
    installation: Installation, agent: RawAgent, changes: dict[str, Any], fault: str
) -> None:
    agent.serve(CARD, answers(agent.card(**changes)))
    assert installation.fault(agent.url) == fault


@pytest.mark.parametrize(
    ("interface", "fault"),
    [
        ({"protocolBinding": "GRPC"}, "no_usable_interface"),
        ({"protocolVersion": "2.0"}, "no_usable_interface"),
        ({"protocolVersion": "0.3.0"}, "protocol_too_old"),
        ({"url": "http://localhost:9999"}, "interface_on_another_origin"),
        ({"url": "http://169.254.169.254/"}, "interface_on_another_origin"),
        ({"url": "/a2a"}, "interface_on_another_origin"),
    ],
)
def test_an_interface_that_cannot_be_used_is_told_of(
    installation: Installation, agent: RawAgent, interface: dict[str, str], fault: str
) -> None:
    usable = agent.card()["supportedInterfaces"][0]
    agent.serve(CARD, answers(agent.card(supportedInterfaces=[{**usable, **interface}])))
    assert installation.fault(agent.url) == fault


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"<html>", "card_not_json"),
        (b"[]", "card_not_json"),
        (b"\xff{}", "card_not_json"),
        (b"[" * 100_000, "card_not_json"),
        (b" " * (MAX_CARD_BYTES + 1), "unreachable"),
    ],
)
def test_what_is_no_card_is_told_of(
    installation: Installation, agent: RawAgent, body: bytes, fault: str
) -> None:
    agent.serve(CARD, answers(body))
    assert installation.fault(agent.url) == fault


def test_a_card_that_never_ends_or_breaks_off_is_not_waited_for(
    installation: Installation, agent: RawAgent
) -> None:
    for hostile in (endless(agent, b" " * 65_536), cut_off(b'{"name":', 1000)):
        agent.serve(CARD, hostile)
        assert installation.fault(agent.url) == "unreachable"


def test_a_card_that_sends_us_in_circles_is_told_of(installation: Installation, agent: RawAgent) -> None:
    agent.serve(CARD, redirect(agent.url + CARD))
    assert installation.fault(agent.url) == "unreachable"


@pytest.mark.parametrize(
    ("status", "fault"),
    [(404, "card_not_found"), (401, "credential_refused"), (500, "unreachable"), (304, "unreachable")],
)
def test_a_card_that_is_not_given_is_told_of(
    installation: Installation, agent: RawAgent, status: int, fault: str
) -> None:
    agent.serve(CARD, answers(b"", status))
    assert installation.fault(agent.url) == fault


@pytest.mark.parametrize(
    ("status", "body", "fault"),
    [(403, b"", "credential_refused"), (500, b"", "interface_failed"), (200, b"<html>", "interface_failed")],
)
def test_an_interface_that_does_not_answer_as_it_should_is_told_of(
    installation: Installation, agent: RawAgent, status: int, body: bytes, fault: str
) -> None:
    agent.serve("/tasks", answers(body, status))
    assert installation.fault(agent.url) == fault


def test_an_agent_that_lists_no_tasks_is_usable_with_a_warning(
    installation: Installation, agent: RawAgent
) -> None:
    agent.serve("/tasks", answers({}, 501))
    report = installation.check(agent.url)
    assert (report.is_usable, [at.code.value for at in report.warnings]) == (True, ["no_task_list"])
    assert installation.endpoint().has_list_tasks is False


def test_a_card_is_looked_for_below_the_address_then_at_its_root(
    installation: Installation, agent: RawAgent
) -> None:
    report = installation.check(f"{agent.url}/agents/a")
    assert report.card_address == agent.url + CARD
    agent.serve(f"/agents/a{CARD}", answers(b"<html>"))
    assert installation.check(f"{agent.url}/agents/a").card_address == agent.url + CARD
    agent.serve(f"/agents/a{CARD}", answers(agent.card()))
    assert installation.check(f"{agent.url}/agents/a").card_address == f"{agent.url}/agents/a{CARD}"


def test_an_address_of_the_card_is_the_only_one_that_is_asked(
    installation: Installation, agent: RawAgent
) -> None:
    agent.serve("/card", answers(agent.card()))
    report = installation.check(agent.url, card_url=f"{agent.url}/card?assistant=1")
    assert report.card_address == f"{agent.url}/card?assistant=1"
    assert agent.count(CARD) == 0


def test_a_credential_stays_with_the_endpoints_own_origin(
    installation: Installation, agent: RawAgent
) -> None:
    credential = Credential(header="X-API-Key", value="right")
    with RawAgent() as other:
        other.serve("/card", answers(agent.card()))
        assert installation.check(agent.url, card_url=f"{other.url}/card", credential=credential).is_usable
        assert "x-api-key" not in other.headers_of("/card")
        agent.serve(CARD, redirect(f"{other.url}/card"))
        assert installation.check(agent.url, credential=credential).is_usable
        assert "x-api-key" not in other.headers_of("/card")
        assert agent.headers_of(CARD)["x-api-key"] == "right"


def test_an_interface_of_another_origin_is_used_where_it_was_registered(
    installation: Installation, agent: RawAgent
) -> None:
    usable = {**agent.card()["supportedInterfaces"][0], "url": "http://unreachable.internal:1/a2a"}
    agent.serve(CARD, answers(agent.card(supportedInterfaces=[usable])))
    assert installation.fault(agent.url) == "interface_on_another_origin"
    assert installation.check(agent.url, interface_override=agent.url).is_usable
    assert installation.endpoint().interface_url == agent.url


def test_a_private_address_is_refused_when_it_is_connected_to(
    installation: Installation, agent: RawAgent
) -> None:
    installation.put(agent.url)
    strict = make_settings(egress_allow_http=True)
    report = check_endpoint(
        installation.database,
        installation.factory.keys,
        strict,
        actor=OPERATOR,
        deployment_id=installation.deployment_id,
    )
    assert [at.code.value for at in report.problems] == ["unreachable"]
    assert "public internet" in report.problems[0].message
    assert agent.requests == []


def test_skills_that_cannot_be_read_are_left_out(installation: Installation, agent: RawAgent) -> None:
    skills = [*agent.card()["skills"], {"id": 3}, "no", {"id": "b", "name": "B", "description": "B."}]
    agent.serve(CARD, answers(agent.card(skills=skills)))
    report = installation.check(agent.url)
    assert (report.is_usable, [at.code.value for at in report.warnings]) == (True, ["skills_left_out"])
