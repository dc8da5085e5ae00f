"""Administration of schedules over HTTP, and its permissions."""

from typing import Any

import pytest

from shared.a2a.tables import behaviors
from shared.identity.access.roles import Role
from shared.ids import new_id
from tests.support.web.web_process import Front

DIGITS = '{"n":9007199254740993,"d":1.10,"e":1e400}'
SENT: dict[str, Any] = {
    "name": "Morning",
    "cron": "0 9 * * MON-FRI",
    "timeZone": "Europe/Berlin",
    "message": {"parts": [{"text": "Good morning"}], "contextId": "mornings"},
    "missed": "catch_up",
    "catchUpLimit": 3,
}


class Place:
    """A deployment, its administrator, and the URL of its schedules."""

    def __init__(self, front: Front) -> None:
        self.organization_id = front.identity.organization().id
        self.deployment = front.identity.deployment(self.organization_id)
        self.admin = front.identity.person(
            self.organization_id, Role.WORKSPACE_ADMIN, bound=True
        ).authorization
        self.path = f"/admin/deployments/{self.deployment.deployment.id}/schedules"


@pytest.fixture
def place(front: Front) -> Place:
    return Place(front)


def test_a_schedule_is_made_read_listed_replaced_and_deleted(front: Front, place: Place) -> None:
    made = front.post(place.path, place.admin, json=SENT)
    assert made.status_code == 201, made.text
    body = made.json
    assert body is not None
    assert {name: body[name] for name in SENT} == SENT
    assert body["nextAt"].endswith(("T08:00:00Z", "T07:00:00Z"))
    one = f"{place.path}/{body['id']}"
    assert made.headers["Location"].endswith(one)
    assert front.get(one, place.admin).json == body
    listed = front.get(place.path, place.admin).json
    assert listed == {"schedules": [body], "nextCursor": None}
    changed = front.put(one, place.admin, json={**SENT, "name": "Evening", "cron": "0 18 * * *"}).json
    assert changed is not None
    assert (changed["id"], changed["name"], changed["cron"]) == (body["id"], "Evening", "0 18 * * *")
    resting = front.post(f"{one}/disable", place.admin).json
    assert resting is not None
    assert (resting["nextAt"], resting["disabledAt"] is not None) == (None, True)
    going = front.post(f"{one}/enable", place.admin).json
    assert going is not None
    assert (going["nextAt"] is not None, going["disabledAt"]) == (True, None)
    assert front.get(f"{one}/runs", place.admin).json == {"runs": [], "nextCursor": None}
    assert front.delete(one, place.admin).status_code == 204
    assert front.get(one, place.admin).status_code == 404


def test_numbers_in_a_message_keep_their_digits(front: Front, place: Place) -> None:
    message = f'{{"parts":[{{"data":{DIGITS}}}]}}'
    body = f'{{"name":"a","cron":"* * * * *","message":{message}}}'
    made = front.post(place.path, place.admin, data=body, content_type="application/json")
    assert made.status_code == 201, made.text
    with front.services.database.autocommit() as session:
        stored = session.connection.exec_driver_sql(
            "SELECT message FROM schedules ORDER BY created_at DESC"
        ).scalar()
    assert stored == message


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"cron": "61 * * * *"}, "cron"),
        ({"cron": "* * * *"}, "cron"),
        ({"timeZone": "Mars/Olympus"}, "timeZone"),
        ({"message": {"parts": []}}, "message.parts"),
        ({"message": {"parts": [{"text": "a", "url": "b"}]}}, "message.parts.0"),
        ({"message": {"parts": [{"text": "a"}], "role": "ROLE_USER"}}, "message.role"),
        ({"message": {"parts": [{"text": "a"}], "contextId": "x" * 256}}, "message.contextId"),
        ({"missed": "never"}, "missed"),
        ({"catchUpLimit": 101}, "catchUpLimit"),
        ({"behaviorId": str(new_id())}, "behaviorId"),
        ({"principalIdentityId": str(new_id())}, "principalIdentityId"),
    ],
)
def test_invalid_schedule_is_refused_with_the_fields_name(
    front: Front, place: Place, change: dict[str, Any], name: str
) -> None:
    refused = front.post(place.path, place.admin, json={**SENT, **change})
    assert refused.status_code == 422, refused.text
    assert refused.json is not None
    assert refused.json["errors"][0]["name"] == name


def test_behaviors_and_principals_are_the_deployments_own(front: Front, place: Place) -> None:
    other = Place(front)
    stranger = front.identity.principal(other.organization_id)
    daemon_id = place.deployment.deployment.daemon_identity_id
    for identity_id in (stranger.id, daemon_id):
        sent = {**SENT, "principalIdentityId": str(identity_id)}
        assert front.post(place.path, place.admin, json=sent).status_code == 422
    own, behavior_id = front.identity.principal(place.organization_id), new_id()
    row = {"id": behavior_id, "deployment_id": place.deployment.deployment.id, "is_default": True}
    with front.services.database.transaction() as session:
        session.execute(
            behaviors.insert().values(
                **row, name="b", kind="script", description="d", script="rules:\n- steps: [complete: ]"
            )
        )
    sent = {**SENT, "principalIdentityId": str(own.id), "behaviorId": str(behavior_id)}
    assert front.post(place.path, place.admin, json=sent).status_code == 201
    assert (
        front.post(other.path, other.admin, json={**SENT, "behaviorId": str(behavior_id)}).status_code == 422
    )


def test_only_administrators_of_the_organization_reach_schedules(front: Front, place: Place) -> None:
    made = front.post(place.path, place.admin, json=SENT).json
    assert made is not None
    one, stranger = f"{place.path}/{made['id']}", Place(front)
    member = front.identity.person(place.organization_id, Role.MEMBER, bound=True).authorization
    for authorization, status in ((member, 403), (stranger.admin, 404)):
        for method, path, json in (
            ("GET", place.path, None),
            ("POST", place.path, SENT),
            ("GET", one, None),
            ("PUT", one, SENT),
            ("DELETE", one, None),
            ("POST", f"{one}/disable", None),
            ("GET", f"{one}/runs", None),
        ):
            answer = front.ask(method, path, authorization, **({"json": json} if json else {}))
            assert answer.status_code == status, (method, path)
    mine_elsewhere = f"{stranger.path}/{made['id']}"
    assert front.get(mine_elsewhere, stranger.admin).status_code == 404
    agent = front.identity.authorization(place.deployment)
    assert front.get(place.path, agent).status_code == 403
