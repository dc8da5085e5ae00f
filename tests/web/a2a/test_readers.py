"""Who may read a deployment's tasks: its administrators, the deployment itself, and each caller their own."""

from collections.abc import Mapping
from itertools import islice
from typing import Any
from uuid import uuid4

import pytest

from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.directory.deployments import disable_deployment
from shared.identity.directory.memberships import change_member_role
from tests.support.processes.stack import wait_until
from tests.web.a2a.asking import Client, events, reason, states
from tests.web.a2a.conftest import Cast
from web.a2a import streams

READERS = ("owner", "admin", "bound admin", "the deployment", "the caller")
OTHERS = (
    "member",
    "another deployment",
    "the deployment, attributed",
    "the deployment, without TaskRead",
    "member who is an agent over one identity",
)
OUTSIDERS = ("another organization's owner", "another organization's deployment")


@pytest.fixture(scope="module")
def readers(cast: Cast) -> Mapping[str, Client]:
    """All callers that request tasks of the agent."""
    identity = cast.front.identity
    globex = identity.organization("Globex").id
    daemon = identity.authorization(cast.agent)
    distribution = identity.distribution(
        cast.acme,
        principal_id=identity.principal(cast.acme).id,
        deployment_id=cast.agent.deployment.id,
    )
    attributed = {"Service_Usage_Attribution": identity.attribution(distribution)}
    bound = identity.person(cast.acme)
    identity.bind_user(
        cast.acme, bound.user_id, Role.PROJECT_AGENT, over=cast.agent.deployment.daemon_identity_id
    )
    authorizations = {
        "owner": identity.person(cast.acme, Role.WORKSPACE_OWNER).authorization,
        "admin": identity.person(cast.acme, Role.WORKSPACE_ADMIN).authorization,
        "bound admin": identity.person(cast.acme, Role.WORKSPACE_ADMIN, bound=True).authorization,
        "member": identity.person(cast.acme).authorization,
        "the deployment": daemon,
        "the deployment, without TaskRead": identity.authorization(cast.agent, "FileRead model.execute"),
        "another deployment": identity.authorization(cast.caller_agent),
        "member who is an agent over one identity": bound.authorization,
        "another organization's owner": identity.person(globex, Role.WORKSPACE_OWNER).authorization,
        "another organization's deployment": identity.authorization(identity.deployment(globex)),
    }
    clients = {who: cast.client(authorization) for who, authorization in authorizations.items()}
    return {
        **clients,
        "the deployment, attributed": clients["the deployment"].with_headers(**attributed),
        "the caller": cast.member,
    }


@pytest.fixture(scope="module")
def task(cast: Cast) -> dict[str, Any]:
    """A task of the member that waits for input."""
    return cast.member.task("ask", contextId="of-the-member")


@pytest.mark.parametrize("who", READERS)
def test_a_task_is_read_listed_and_followed_by(
    cast: Cast, readers: Mapping[str, Client], task: dict[str, Any], who: str
) -> None:
    reader = readers[who]
    assert reader.read(task["id"]) == cast.member.read(task["id"])
    for query in ("", "?contextId=of-the-member", "?status=TASK_STATE_INPUT_REQUIRED"):
        assert task["id"] in [found["id"] for found in reader.list(query)["tasks"]]
    for method in ("GET", "POST"):
        stream = reader.ask(method, f"/tasks/{task['id']}:subscribe", buffered=False)
        assert stream.status_code == 200
        stream.close()


@pytest.mark.parametrize("who", OTHERS)
def test_the_task_is_not_there_for(readers: Mapping[str, Client], task: dict[str, Any], who: str) -> None:
    client = readers[who]
    for method, path in (
        ("GET", "/tasks/{}"),
        ("GET", "/tasks/{}:subscribe"),
        ("POST", "/tasks/{}:subscribe"),
    ):
        foreign, absent = (client.ask(method, path.format(task_id)) for task_id in (task["id"], uuid4()))
        assert (foreign.status_code, reason(foreign)) == (404, "TASK_NOT_FOUND")
        assert foreign.get_json()["error"]["message"] == absent.get_json()["error"]["message"]
    assert client.list()["totalSize"] == 0


@pytest.mark.parametrize("who", OUTSIDERS)
def test_tasks_are_hidden_from(readers: Mapping[str, Client], task: dict[str, Any], who: str) -> None:
    for path in (f"/tasks/{task['id']}", f"/tasks/{task['id']}:subscribe", "/tasks"):
        answer = readers[who].ask("GET", path)
        assert (answer.status_code, task["id"] in answer.text) == (403, False)


@pytest.mark.parametrize("who", ["owner", "admin", "the deployment"])
def test_reader_cannot_change_a_task_or_see_its_push_configurations(
    cast: Cast, readers: Mapping[str, Client], task: dict[str, Any], who: str
) -> None:
    reader, one = readers[who], f"/tasks/{task['id']}"
    push = {"json": {"id": "one", "url": "https://hooks.example/"}}
    for method, path, body in (
        ("POST", f"{one}:cancel", {}),
        ("POST", f"{one}/pushNotificationConfigs", push),
        ("GET", f"{one}/pushNotificationConfigs", {}),
        ("GET", f"{one}/pushNotificationConfigs/one", {}),
        ("DELETE", f"{one}/pushNotificationConfigs/one", {}),
    ):
        assert reader.ask(method, path, **body).status_code == 404
    assert reader.send("x", taskId=task["id"]).status_code == 404
    assert cast.member.read(task["id"]) == task


def test_tasks_of_other_agents_are_not_among_them(cast: Cast, readers: Mapping[str, Client]) -> None:
    other, member = cast.new_agent()
    elsewhere = member.task("work")
    for who in ("owner", "the deployment"):
        assert readers[who].ask("GET", f"/tasks/{elsewhere['id']}").status_code == 404
    assert cast.at(other, readers["owner"].authorization).read(elsewhere["id"]) == elsewhere
    assert cast.at(other, readers["the deployment"].authorization).list()["totalSize"] == 0


def test_pages_of_a_deployments_tasks_cover_all_callers_once(cast: Cast) -> None:
    agent, member = cast.new_agent()
    colleague = cast.at(agent, cast.colleague.authorization)
    made = [client.task("hello")["id"] for client in (member, colleague, member, colleague, member)]
    member.send("ping")
    admin = cast.at(agent, cast.front.identity.person(cast.acme, Role.WORKSPACE_ADMIN).authorization)
    seen, token = [], ""
    while True:
        page = admin.list(f"?pageSize=2&pageToken={token}")
        assert page["totalSize"] == 5
        seen += [found["id"] for found in page["tasks"]]
        token = page["nextPageToken"]
        if not token:
            break
    assert seen == made[::-1]
    assert (member.list()["totalSize"], colleague.list()["totalSize"]) == (3, 2)


def test_an_administrators_subscription_ends_with_their_role(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "COMMENT_SECONDS", 0.2)
    admin = cast.front.identity.person(cast.acme, Role.WORKSPACE_ADMIN)
    task = cast.member.task("ask")
    stream = cast.client(admin.authorization).ask("GET", f"/tasks/{task['id']}:subscribe", buffered=False)
    with cast.front.services.database.transaction() as session:
        change_member_role(
            session, actor=OPERATOR, organization_id=cast.acme, user_id=admin.user_id, role=Role.MEMBER
        )
    told = stream.get_data(as_text=True)
    assert told.count("event: error") == 1
    assert "PERMISSION_DENIED" in told


def test_a_subscription_ends_with_its_agent(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "COMMENT_SECONDS", 0.2)
    created, client = cast.new_agent()
    stream = client.ask("GET", f"/tasks/{client.task('ask')['id']}:subscribe", buffered=False)
    with cast.front.services.database.transaction() as session:
        disable_deployment(session, actor=OPERATOR, deployment_id=created.deployment.id)
    told = b"".join(islice(stream.iter_encoded(), 100)).decode()
    assert told.count("event: error") == 1
    assert "AGENT_NOT_FOUND" in told


def test_an_administrator_follows_a_task_to_its_end(cast: Cast, readers: Mapping[str, Client]) -> None:
    task = cast.member.task("hang", configuration={"returnImmediately": True})
    wait_until(
        lambda: cast.member.read(task["id"])["status"]["state"].endswith("WORKING"), "the agent has begun"
    )
    stream = readers["admin"].ask("GET", f"/tasks/{task['id']}:subscribe", buffered=False)
    assert cast.member.ask("POST", f"/tasks/{task['id']}:cancel").status_code == 200
    assert states(events(stream)) == ["WORKING", "CANCELED"]
