"""`GET /agents` lists an organization's agents in pages, for everyone who may send messages to them."""

import pytest

from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.directory.deployments import CreatedDeployment, disable_deployment
from shared.identity.directory.identities import disable_identity
from tests.support.web.web_process import Front
from tests.web.a2a.asking import Client
from tests.web.a2a.conftest import SCRIPT, give_script


def names(front: Front, authorization: str) -> list[str]:
    return [agent["name"] for agent in front.get("/agents", authorization).get_json()["agents"]]


@pytest.mark.parametrize("who", ["owner", "admin", "member", "deployment"])
def test_agents_are_listed_with_their_addresses(front: Front, who: str) -> None:
    acme = front.identity.organization().id
    made = front.identity.deployment(acme, "Helper")
    front.identity.deployment(front.identity.organization().id, "Another's")
    give_script(front, made, SCRIPT)
    authorization = {
        "owner": lambda: front.identity.person(acme, Role.WORKSPACE_OWNER).authorization,
        "admin": lambda: front.identity.person(acme, Role.WORKSPACE_ADMIN, bound=True).authorization,
        "member": lambda: front.identity.person(acme).authorization,
        "deployment": lambda: front.identity.authorization(made),
    }[who]()
    page = front.get("/agents", authorization).get_json()
    (agent,) = page["agents"]
    url = f"http://localhost/agents/{made.deployment.id}"
    assert (agent["deploymentId"], agent["name"], agent["url"]) == (
        str(made.deployment.id),
        "Helper",
        url,
    )
    assert (agent["cardUrl"], page["nextCursor"]) == (f"{url}/.well-known/agent-card.json", None)
    assert front.get(agent["cardUrl"].removeprefix("http://localhost")).get_json()["name"] == "Helper"
    assert Client(front, f"/agents/{agent['deploymentId']}", authorization, {}).list()["totalSize"] == 0


def test_pages_of_agents_cover_all_once(front: Front) -> None:
    acme = front.identity.organization().id
    member = front.identity.person(acme).authorization
    for number in range(5):
        front.identity.deployment(acme, f"agent {number}")
    seen, query = [], "?limit=2"
    while True:
        page = front.get(f"/agents{query}", member).get_json()
        seen += [agent["name"] for agent in page["agents"]]
        if page["nextCursor"] is None:
            break
        query = f"?limit=2&cursor={page['nextCursor']}"
    assert seen == [f"agent {number}" for number in range(5)]


def test_an_agent_that_cannot_be_talked_to_is_not_listed(front: Front) -> None:
    acme = front.identity.organization().id
    member = front.identity.person(acme).authorization
    made: dict[str, CreatedDeployment] = {
        name: front.identity.deployment(acme, name) for name in ("kept", "disabled", "without daemon")
    }
    with front.services.database.transaction() as session:
        disable_deployment(session, actor=OPERATOR, deployment_id=made["disabled"].deployment.id)
        daemon_id = made["without daemon"].deployment.daemon_identity_id
        disable_identity(session, actor=OPERATOR, identity_id=daemon_id)
    assert names(front, member) == ["kept"]
    for agent in made.values():
        card = front.get(f"/agents/{agent.deployment.id}/.well-known/agent-card.json")
        assert (card.status_code == 200) == (agent is made["kept"])


def test_agents_are_listed_for_callers_with_an_organization_only(front: Front) -> None:
    operator = front.get("/agents", front.identity.operator().authorization)
    assert (operator.status_code, operator.get_json()["code"]) == (400, "billing_organization_required")
    assert front.get("/agents").status_code == 401
    acme = front.identity.organization().id
    narrow = front.identity.authorization(front.identity.deployment(acme), "FileRead")
    assert front.get("/agents", narrow).status_code == 403
    member = front.identity.person(acme).authorization
    assert front.get("/agents?limit=0", member).status_code == 422
