"""Administration of endpoints: which server handles a deployment's messages, and which secrets are never returned."""

from typing import Any

import pytest
from sqlalchemy import select

from shared.a2a.endpoint_tables import deployment_endpoints
from shared.a2a.remote.endpoints import find_endpoint
from shared.encryption import Encryption
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.audit import list_audit_events
from tests.web.a2a.asking import request, text_of
from tests.web.a2a.conftest import Cast, give_script

SECRET = "k" * 40
ENDPOINT = {"url": "https://agent.example/base/"}
CREDENTIAL = {"header": "X-API-Key", "value": SECRET}


class Administrator:
    """An administrator of Acme, with one deployment."""

    def __init__(self, cast: Cast) -> None:
        person = cast.front.identity.person(cast.acme, Role.WORKSPACE_ADMIN)
        self.front, self.authorization = cast.front, person.authorization
        self.deployment = cast.front.identity.deployment(cast.acme)
        self.id = self.deployment.deployment.id
        self.path = f"/admin/deployments/{self.id}/endpoint"
        self.client = cast.at(self.deployment, cast.member.authorization)

    def put(self, *, status: int = 200, **body: Any) -> dict[str, Any]:
        answer = self.front.put(self.path, self.authorization, json={**ENDPOINT, **body})
        assert answer.status_code == status, answer.text
        shown: dict[str, Any] = answer.get_json()
        return shown

    def get(self, *, status: int = 200) -> dict[str, Any]:
        answer = self.front.get(self.path, self.authorization)
        assert answer.status_code == status
        shown: dict[str, Any] = answer.get_json()
        return shown

    def delete(self) -> int:
        return self.front.delete(self.path, self.authorization).status_code

    def behaviors(self) -> list[tuple[str, bool]]:
        path = f"/admin/deployments/{self.id}/behaviors"
        listed = self.front.get(path, self.authorization).get_json()["behaviors"]
        return [(behavior["kind"], behavior["isDefault"]) for behavior in listed]


@pytest.fixture
def administrator(cast: Cast) -> Administrator:
    return Administrator(cast)


def test_an_endpoint_is_set_read_replaced_and_deleted(administrator: Administrator) -> None:
    administrator.get(status=404)
    made = administrator.put()
    assert made == administrator.get()
    assert made["url"] == "https://agent.example/base"
    assert (made["binding"], made["interfaceUrl"], made["checkedAt"], made["problem"]) == (None,) * 4
    replaced = administrator.put(
        url="https://other.example", cardUrl="https://cards.example/a?id=1", resends=True
    )
    assert (replaced["url"], replaced["resends"]) == ("https://other.example", True)
    assert replaced["createdAt"] == made["createdAt"]
    assert administrator.delete() == 204
    assert administrator.delete() == 204
    administrator.get(status=404)


def test_a_credential_is_sealed_and_never_shown(administrator: Administrator) -> None:
    shown = administrator.put(credential=CREDENTIAL)
    assert shown["credentialHeader"] == "X-API-Key"
    assert SECRET not in str(shown) + str(administrator.get())
    front = administrator.front
    with front.services.database.transaction() as session:
        sealed = session.execute(
            select(deployment_endpoints.c.credential_encrypted).where(
                deployment_endpoints.c.deployment_id == administrator.id
            )
        ).scalar_one()
        endpoint = find_endpoint(session, administrator.id)
        events = list_audit_events(
            session, actor=OPERATOR, organization_id=administrator.deployment.deployment.organization_id
        )
    assert SECRET.encode() not in bytes(sealed)
    assert endpoint is not None
    assert endpoint.credential_headers(Encryption(front.settings)) == {"X-API-Key": SECRET}
    assert "sealed" not in repr(endpoint)
    assert bytes(sealed).decode() not in repr(endpoint)
    assert events.items[0].action == "endpoint.set"
    assert SECRET not in str(events.items)


def test_a_credential_does_not_follow_to_another_address(administrator: Administrator) -> None:
    administrator.put(credential=CREDENTIAL)
    assert administrator.put(url="https://other.example")["credentialHeader"] is None


@pytest.mark.parametrize(
    ("wrong", "status", "code"),
    [
        ({"url": "http://agent.example"}, 422, "scheme_refused"),
        ({"url": "https://user:secret@agent.example"}, 422, "url_refused"),
        ({"url": "https://127.0.0.1"}, 422, "address_refused"),
        ({"url": "https://agent.example:8443"}, 422, "address_refused"),
        ({"url": "https://agent.example/?key=1"}, 422, "validation_failed"),
        ({"cardUrl": "https://169.254.169.254/card"}, 422, "address_refused"),
        ({"interfaceUrl": "https://[::1]/a2a"}, 422, "address_refused"),
        ({"credential": {"header": "Authorization", "value": "x"}}, 422, "validation_failed"),
        ({"credential": {"header": "Service-Usage-Attribution", "value": "x"}}, 422, "validation_failed"),
        ({"credential": {"header": "Host", "value": "x"}}, 422, "validation_failed"),
        ({"credential": {"header": "X Key", "value": "x"}}, 422, "validation_failed"),
        ({"credential": {"header": "X-Key", "value": "ü"}}, 422, "validation_failed"),
    ],
)
def test_an_endpoint_that_could_not_be_asked_is_refused(
    administrator: Administrator, wrong: dict[str, Any], status: int, code: str
) -> None:
    assert administrator.put(status=status, **wrong)["code"] == code
    administrator.get(status=404)


def test_endpoint_is_the_default_until_it_is_deleted(administrator: Administrator) -> None:
    give_script(administrator.front, administrator.deployment, "rules: [{steps: [{complete: Fine}]}]")
    administrator.put()
    administrator.put()
    assert administrator.behaviors() == [("script", False), ("remote", True)]
    administrator.delete()
    assert administrator.behaviors() == [("script", True)]
    assert text_of(administrator.client.task("hello")["status"]["message"]) == "Fine"


def test_the_behavior_of_an_endpoint_is_changed_with_the_endpoint_alone(administrator: Administrator) -> None:
    administrator.put()
    path = f"/admin/deployments/{administrator.id}/behaviors"
    (made,) = administrator.front.get(path, administrator.authorization).get_json()["behaviors"]
    at = f"/admin/behaviors/{made['id']}"
    draft = {"name": "Mine", "kind": "script", "description": "Mine."}
    replaced = administrator.front.put(at, administrator.authorization, json=draft)
    deleted = administrator.front.delete(at, administrator.authorization)
    for answer in (replaced, deleted):
        assert (answer.status_code, answer.get_json()["code"]) == (409, "behavior_of_endpoint")
    created = administrator.front.post(path, administrator.authorization, json={**draft, "kind": "remote"})
    assert created.status_code == 422


def test_a_skill_that_is_not_ours_is_left_to_the_remote_agent(administrator: Administrator) -> None:
    administrator.put()
    sent = request("hello", configuration={"returnImmediately": True})
    sent["message"]["metadata"] = {"skillId": "their-own"}
    answer = administrator.client.ask("POST", "/message:send", json=sent)
    assert answer.status_code == 200, answer.text


def test_endpoint_is_not_found_for_other_callers(administrator: Administrator, cast: Cast) -> None:
    administrator.put()
    for authorization, status in ((cast.stranger.authorization, 404), (cast.member.authorization, 403)):
        assert administrator.front.get(administrator.path, authorization).status_code == status
        assert administrator.front.delete(administrator.path, authorization).status_code == status
    administrator.get()
