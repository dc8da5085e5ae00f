"""Cards of deployments with an endpoint: the remote agent's texts under our URL, refreshed regularly."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from shared.a2a.remote.cards.card_reader import CardReader
from shared.a2a.remote.cards.card_refresh import FAIR, CardRefresher, refresh_due_cards
from shared.a2a.remote.endpoints import EndpointDraft, put_endpoint
from shared.egress.policy import EgressPolicy
from shared.encryption import Encryption
from shared.identity.access.authorization import OPERATOR
from tests.contracts.a2a.schemas import check
from tests.shared.a2a.remote.agents import CARD, TRANSLATION, RawAgent, answers, sdk_agent
from tests.shared.a2a.remote.installations import DEVELOPING
from tests.support.web.web_process import Front, open_front
from tests.web.a2a.asking import Client, reason
from tests.web.a2a.conftest import give_script


@dataclass(frozen=True, kw_only=True)
class Routed:
    """A deployment with an endpoint, and a caller who may send messages to it."""

    front: Front
    deployment_id: UUID
    client: Client

    def put(self, url: str) -> None:
        services = self.front.services
        with services.database.transaction() as session:
            put_endpoint(
                session,
                services.settings,
                actor=OPERATOR,
                deployment_id=self.deployment_id,
                draft=EndpointDraft(url=url),
            )

    def refresh(self) -> int:
        """Make the card due and refresh all due cards. Return their number."""
        services = self.front.services
        with services.database.transaction() as session:
            due = "UPDATE deployment_endpoints SET next_check_at = now() WHERE deployment_id = :id"
            session.execute(text(due), {"id": self.deployment_id})
        settings = services.settings
        reader = CardReader(EgressPolicy.of(settings), Encryption(settings))
        return refresh_due_cards(CardRefresher(database=services.database, reader=reader))

    def card(self) -> dict[str, Any]:
        answer = Client(self.front, self.client.prefix, None, {}).ask("GET", CARD)
        card: dict[str, Any] = answer.get_json()
        check("AgentCard", card)
        return card

    def problem(self) -> str | None:
        statement = text("SELECT problem FROM deployment_endpoints WHERE deployment_id = :id")
        with self.front.services.database.transaction() as session:
            found: str | None = session.execute(statement, {"id": self.deployment_id}).scalar_one()
        return found


@pytest.fixture(scope="module")
def developing(front: Front, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """A front that may connect to this host."""
    urls = (front.settings.database_url, front.settings.redis_url)
    with open_front(*urls, tmp_path_factory.mktemp("blobs"), any_store=True, **DEVELOPING) as opened:
        yield opened
        opened.services.agents.watch.close()


@pytest.fixture
def routed(developing: Front) -> Routed:
    acme = developing.identity.organization("Acme").id
    agent = developing.identity.deployment(acme, "Ours")
    give_script(developing, agent, "rules: [{steps: [{complete: Fine}]}]", name="Own")
    prefix = f"/agents/{agent.deployment.id}"
    member = developing.identity.person(acme)
    return Routed(
        front=developing,
        deployment_id=agent.deployment.id,
        client=Client(developing, prefix, member.authorization, {}),
    )


@pytest.fixture
def agent() -> Iterator[RawAgent]:
    with RawAgent() as server:
        server.serve(CARD, answers(server.card(), ETag='"1"'))
        yield server


def test_a_card_has_the_agents_words_and_our_ways_in(routed: Routed) -> None:
    before = routed.card()
    with sdk_agent("JSONRPC") as url:
        routed.put(url)
        assert routed.card()["name"] == "Ours"
        assert routed.refresh() == 1
    card = routed.card()
    assert (card["name"], card["description"], card["version"]) == ("Reporter", "Reports on photos.", "2.5")
    assert [skill["name"] for skill in card["skills"]] == ["Report", "Own"]
    assert (card["defaultInputModes"], card["defaultOutputModes"]) == (
        ["text/plain", "image/*"],
        ["text/plain"],
    )
    for ours in ("supportedInterfaces", "securitySchemes", "securityRequirements", "provider"):
        assert card[ours] == before[ours]
    uris = [extension["uri"] for extension in card["capabilities"]["extensions"]]
    assert uris == [*(at["uri"] for at in before["capabilities"]["extensions"]), TRANSLATION]
    extended = routed.client.ask("GET", "/extendedAgentCard").get_json()
    assert [skill["description"] for skill in extended["skills"]] == [
        "Describes. (Works with a server of its own.)",
        "Follows a script. (Works with a script.)",
    ]


def test_urls_of_other_servers_are_removed_from_the_card(routed: Routed, agent: RawAgent) -> None:
    agent.serve(
        CARD,
        answers(
            agent.card(
                signatures=[{"protected": "e30", "signature": "x"}],
                securitySchemes={"own": {"apiKeySecurityScheme": {"location": "header", "name": "X"}}},
                securityRequirements=[{"schemes": {"own": {"list": []}}}],
                iconUrl="javascript:alert(1)",
                unknown={"a": 1},
            )
        ),
    )
    routed.put(agent.url)
    routed.refresh()
    card = routed.card()
    assert card["name"] == "Raw"
    assert not {"signatures", "iconUrl", "unknown"} & card.keys()
    assert set(card["securitySchemes"]) == {"apiKey", "accessToken"}
    assert "'own'" not in str(card["securityRequirements"])


def test_extensions_of_the_agent_are_negotiated_like_ours(routed: Routed, agent: RawAgent) -> None:
    extensions = [{"uri": TRANSLATION, "required": True, "params": {"n": 1.5}}, {"uri": "two words"}]
    agent.serve(CARD, answers(agent.card(capabilities={"extensions": extensions})))
    routed.put(agent.url)
    routed.refresh()
    declared = routed.card()["capabilities"]["extensions"]
    assert {"uri": TRANSLATION, "required": True, "params": {"n": 1.5}} in declared
    assert "two words" not in [at["uri"] for at in declared]
    refused = routed.client.send("hello")
    assert (refused.status_code, reason(refused)) == (400, "EXTENSION_SUPPORT_REQUIRED")
    waiting: dict[str, Any] = {"configuration": {"returnImmediately": True}}
    taken = routed.client.with_headers(A2A_Extensions=TRANSLATION).send("hello", **waiting)
    assert (taken.status_code, taken.headers["A2A-Extensions"]) == (200, TRANSLATION)


def test_card_is_refreshed_and_requested_by_etag(routed: Routed, agent: RawAgent) -> None:
    routed.put(agent.url)
    routed.refresh()
    assert "if-none-match" not in agent.headers_of(CARD)
    agent.serve(CARD, answers(b"", 304))
    assert routed.refresh() == 1
    assert agent.headers_of(CARD)["if-none-match"] == '"1"'
    assert (routed.card()["name"], routed.problem()) == ("Raw", None)
    agent.serve(CARD, answers(agent.card(name="Renamed"), ETag='"2"'))
    routed.refresh()
    assert routed.card()["name"] == "Renamed"


@pytest.mark.parametrize("failure", [answers(b"<html>"), answers(b"", 503), answers({"name": "Half"})])
def test_a_card_that_cannot_be_read_again_stays(routed: Routed, agent: RawAgent, failure: Any) -> None:
    routed.put(agent.url)
    routed.refresh()
    agent.serve(CARD, failure)
    assert routed.refresh() == 1
    assert routed.card()["name"] == "Raw"
    assert routed.problem() is not None
    agent.serve(CARD, answers(agent.card()))
    routed.refresh()
    assert routed.problem() is None


def test_a_new_agent_that_is_not_there_yet_is_asked_again_soon(routed: Routed, agent: RawAgent) -> None:
    agent.serve(CARD, answers(b"", 503))
    routed.put(agent.url)
    routed.refresh()
    soon = (
        "SELECT next_check_at - now() < interval '15 s' FROM deployment_endpoints WHERE deployment_id = :id"
    )
    with routed.front.services.database.transaction() as session:
        assert session.execute(text(soon), {"id": routed.deployment_id}).scalar_one()
    assert routed.card()["name"] == "Ours"


def test_a_card_is_the_deployments_own_again_without_its_endpoint(routed: Routed, agent: RawAgent) -> None:
    routed.put(agent.url)
    routed.refresh()
    person = routed.front.identity.operator()
    path = f"/admin/deployments/{routed.deployment_id}/endpoint"
    assert routed.front.post(f"{path}/check", person.authorization).get_json()["isUsable"] is True
    assert routed.front.delete(path, person.authorization).status_code == 204
    card = routed.card()
    assert (card["name"], [skill["name"] for skill in card["skills"]]) == ("Ours", ["Own"])
    assert routed.front.post(f"{path}/check", person.authorization).status_code == 404


def test_many_due_cards_are_read_organization_by_organization(routed: Routed) -> None:
    with routed.front.services.database.transaction() as session:
        session.execute(text(FAIR), {"each": 2, "limit": 16}).all()
