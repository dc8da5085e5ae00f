"""Agent cards: their content, who may read them, and how long they may be cached."""

from sqlalchemy import text

from shared.a2a.agents.directory import LISTED_DISTRIBUTIONS, ROUTED
from shared.a2a.behaviors.administration import BehaviorDraft, create_behavior, remove_behavior
from shared.a2a.updates import BehaviorKind
from shared.identity.access.authorization import OPERATOR
from tests.contracts.a2a.schemas import check
from tests.support.data.query_plans import explain
from tests.web.a2a.asking import Client
from tests.web.a2a.conftest import SCRIPT, Cast, give_script

WELL_KNOWN = "/.well-known/agent-card.json"


def anybody(client: Client) -> Client:
    return Client(client.front, client.prefix, None, {})


def test_card_is_public_and_describes_the_agent(cast: Cast) -> None:
    answer = anybody(cast.member).ask("GET", WELL_KNOWN)
    card = answer.get_json()
    check("AgentCard", card)
    assert answer.mimetype == "application/json"
    assert card["name"] == "Helper"
    assert card["provider"]["organization"] == "Acme"
    url = f"http://localhost{cast.member.prefix}"
    assert card["supportedInterfaces"] == [
        {"url": url, "protocolBinding": binding, "protocolVersion": "1.0"}
        for binding in ("HTTP+JSON", "JSONRPC")
    ]
    assert [skill["name"] for skill in card["skills"]] == ["scripted"]
    assert card["capabilities"]["streaming"] is True
    names = [extension["uri"].split("/")[-2] for extension in card["capabilities"]["extensions"]]
    assert names == ["event", "artifact-schema", "file-artifact"]
    schemes = {name for entry in card["securityRequirements"] for name in entry["schemes"]}
    assert schemes == set(card["securitySchemes"])


def test_card_can_be_cached_and_revalidated(cast: Cast) -> None:
    client = anybody(cast.member)
    answer = client.ask("GET", WELL_KNOWN)
    assert answer.headers["Cache-Control"] == "public, max-age=60"
    again = client.ask("GET", WELL_KNOWN, headers={"If-None-Match": answer.headers["ETag"]})
    assert again.status_code == 304
    assert again.headers["ETag"] == answer.headers["ETag"]
    assert not again.get_data()


def test_conditional_get_returns_a_card_that_lost_a_skill(cast: Cast) -> None:
    created, client = cast.new_agent()
    skill = give_script(cast.front, created, SCRIPT, name="more")
    before = client.ask("GET", WELL_KNOWN).headers
    with cast.front.services.database.transaction() as session:
        remove_behavior(session, actor=OPERATOR, behavior_id=skill.id)
    for condition in (
        {"If-None-Match": before["ETag"]},
        {"If-Modified-Since": before["Last-Modified"]},
        {"If-None-Match": before["ETag"], "If-Modified-Since": before["Last-Modified"]},
    ):
        after = client.ask("GET", WELL_KNOWN, headers=condition)
        assert after.status_code == 200
        assert [found["name"] for found in after.get_json()["skills"]] == ["scripted"]


def test_a_card_changes_with_its_agent(cast: Cast) -> None:
    created, client = cast.new_agent()
    before = client.ask("GET", WELL_KNOWN)
    with cast.front.services.database.transaction() as session:
        create_behavior(
            session,
            actor=OPERATOR,
            deployment_id=created.deployment.id,
            draft=BehaviorDraft(
                name="Sums",
                kind=BehaviorKind.MODEL,
                description="Adds up.",
                model="scripted/echo",
                tags=("sums",),
                examples=("1 + 1?",),
                input_modes=("text/plain", "image/*"),
            ),
        )
    after = client.ask("GET", WELL_KNOWN, headers={"If-None-Match": before.headers["ETag"]})
    assert after.status_code == 200
    check("AgentCard", after.get_json())
    skill = after.get_json()["skills"][1]
    assert (skill["name"], skill["tags"], skill["inputModes"]) == (
        "Sums",
        ["sums"],
        ["text/plain", "image/*"],
    )
    assert "scripted/echo" not in after.get_data(as_text=True)
    extended = client.ask("GET", "/extendedAgentCard")
    check("AgentCard", extended.get_json())
    assert "scripted/echo" in extended.get_json()["skills"][1]["description"]


def test_the_extended_card_is_for_callers(cast: Cast) -> None:
    assert anybody(cast.member).ask("GET", "/extendedAgentCard").status_code == 401
    assert cast.stranger.ask("GET", "/extendedAgentCard").status_code == 403


def test_card_of_a_distributed_agent_lists_its_networks(cast: Cast) -> None:
    created, client = cast.new_agent()
    principal = cast.front.identity.principal(cast.acme)
    cast.front.identity.distribution(
        cast.acme, principal_id=principal.id, deployment_id=created.deployment.id
    )
    card = anybody(client).ask("GET", WELL_KNOWN).get_json()
    found = {extension["uri"]: extension for extension in card["capabilities"]["extensions"]}
    declared = found["http://localhost/extensions/distribution/v1"]
    assert declared["params"] == {"networks": ["slack"]}


def test_a_card_is_made_from_a_bounded_number_of_distributions(cast: Cast) -> None:
    created, client = cast.new_agent()
    identity, database = cast.front.identity, cast.front.services.database
    one = identity.distribution(
        cast.acme, principal_id=identity.principal(cast.acme).id, deployment_id=created.deployment.id
    )
    many = """
        INSERT INTO distributions (id, organization_id, name, networks, principal_identity_id, deployment_id,
            token_hash, token_last4, webhook_secret_encrypted)
        SELECT CAST('f' || lpad(to_hex(n), 31, '0') AS uuid), organization_id, 'many', ARRAY['n' || n],
            principal_identity_id, deployment_id, sha256(CAST('many' || n AS bytea)), 'last', webhook_secret_encrypted
        FROM distributions CROSS JOIN generate_series(1, 3000) AS n WHERE id = :id"""
    with database.transaction() as session:
        session.execute(text(many), {"id": one.distribution.id})
    card = anybody(client).ask("GET", WELL_KNOWN).get_json()
    found = {extension["uri"]: extension for extension in card["capabilities"]["extensions"]}
    networks = found["http://localhost/extensions/distribution/v1"]["params"]["networks"]
    assert set(networks) == {f"n{n}" for n in range(3000 - LISTED_DISTRIBUTIONS + 1, 3001)}
    values = {"deployment_id": created.deployment.id, "limit": LISTED_DISTRIBUTIONS}
    assert explain(database, ROUTED, values).blocks < 3 * LISTED_DISTRIBUTIONS


def test_a_disabled_agent_has_no_card(cast: Cast) -> None:
    created, client = cast.new_agent()
    person = cast.front.identity.operator()
    disabled = cast.front.post(f"/admin/deployments/{created.deployment.id}/disable", person.authorization)
    assert disabled.status_code == 200
    assert anybody(client).ask("GET", WELL_KNOWN).status_code == 404
    assert client.send().status_code == 404
