"""A distribution pushes a text, and its deployment's agent gets one message for the receiving identity."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from shared import failpoints
from shared.a2a.exact_json import parse
from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.deployments import disable_deployment
from shared.identity.directory.distributions import disable_distribution, rotate_webhook_secret
from shared.identity.directory.organizations import suspend_organization
from tests.support.web.web_process import Front
from tests.web.inbound.conftest import Door, make_door, message
from tests.web.media.conftest import sql


def test_a_text_becomes_a_message_to_the_agent(door: Door) -> None:
    taken = door.taken("hello", conversationId="c-1")
    assert (taken["state"], taken["replayed"], taken["code"]) == ("Routed", False, None)
    task = door.settled(taken["taskId"])
    assert task["contextId"] == taken["contextId"]
    (said,) = task["history"]
    assert (said["messageId"], said["role"], said["parts"]) == (
        taken["messageId"],
        "ROLE_USER",
        [{"text": "hello"}],
    )


def test_the_receiving_identity_owns_and_the_organization_pays(door: Door) -> None:
    reported = {"id": "U1", "display": "Ada"}
    taken = door.taken(channel="telegram", reportedCaller=reported)
    (turn,) = sql(door.front, "SELECT * FROM task_turns WHERE task_id = :id", id=taken["taskId"])
    assert (turn.owner_id, turn.payer_id, turn.distribution_id, parse(turn.reported_caller)) == (
        door.connector.principal_id,
        door.connector.organization_id,
        door.connector.id,
        reported,
    )
    assert parse(turn.request)["channel"] == "telegram"
    (task,) = sql(door.front, "SELECT * FROM tasks WHERE id = :id", id=taken["taskId"])
    daemon = door.connector.deployment.deployment.daemon_identity_id
    assert (task.caller_id, task.principal_id) == (daemon, door.connector.principal_id)


def test_signed_message_needs_no_token(door: Door) -> None:
    answer = door.push_signed("signed")
    assert answer.status_code == 202, answer.text
    forged = door.push_signed("forged", secret="whsec_" + "A" * 44)
    assert (forged.status_code, (forged.json or {})["code"]) == (401, "signature_invalid")


def test_signed_message_with_a_replaced_secret_is_refused(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = make_door(front)

    def reach(name: str) -> None:
        if name == "message.received":
            monkeypatch.setattr(failpoints, "hit", lambda _: None)
            with front.services.database.transaction() as session:
                rotate_webhook_secret(
                    session,
                    front.settings,
                    actor=OPERATOR,
                    distribution_id=door.connector.id,
                    overlap_seconds=0,
                )

    monkeypatch.setattr(failpoints, "hit", reach)
    answer = door.push_signed("signed")
    assert (answer.status_code, (answer.json or {})["code"]) == (401, "signature_invalid")
    assert door.rows() == []


def test_messages_of_a_conversation_share_a_context(door: Door) -> None:
    first, second = (door.taken(conversationId="shared") for _ in range(2))
    other, alone = door.taken(conversationId="other"), door.taken()
    assert first["contextId"] == second["contextId"]
    assert len({first["contextId"], other["contextId"], alone["contextId"]}) == 3
    assert first["taskId"] != second["taskId"]


def test_reply_to_a_question_continues_its_task(door: Door) -> None:
    conversation = uuid4().hex
    asking = door.taken("ask", conversationId=conversation)
    door.settled(asking["taskId"], "TASK_STATE_INPUT_REQUIRED")
    answer = door.taken("the second one", conversationId=conversation)
    assert answer["taskId"] == asking["taskId"]
    door.settled(asking["taskId"])
    later = door.taken("and now?", conversationId=conversation)
    assert later["taskId"] != asking["taskId"]


def test_repeated_message_returns_the_first_response(door: Door) -> None:
    said = message("once")
    first = door.post(door.connector.authorization, json=said).json or {}
    again = door.post(door.connector.authorization, json=said)
    assert (again.status_code, again.json) == (202, {**first, "replayed": True})
    assert sql(door.front, "SELECT count(*) FROM task_turns WHERE task_id = :id", id=first["taskId"]) == [
        (1,)
    ]


def test_message_id_is_unique_within_its_distribution(front: Front, door: Door) -> None:
    said, stranger = message("once"), make_door(front)
    first = door.post(door.connector.authorization, json=said).json or {}
    own = stranger.post(stranger.connector.authorization, json=said).json or {}
    assert (own["replayed"], own["taskId"] == first["taskId"]) == (False, False)


@pytest.mark.parametrize(
    "change",
    [{"text": "other"}, {"conversationId": "c"}, {"reportedCaller": {"id": "U2"}}, {"channel": "irc"}],
    ids=lambda change: next(iter(change)),
)
def test_the_same_id_for_something_else_is_a_conflict(door: Door, change: dict[str, Any]) -> None:
    said = message("once")
    door.post(door.connector.authorization, json=said)
    answer = door.post(door.connector.authorization, json={**said, **change})
    assert (answer.status_code, (answer.json or {})["code"]) == (409, "message_conflict")


def test_twenty_pushes_at_once_are_one_message(front: Front, door: Door) -> None:
    said = message("at once")

    def push(_: int) -> str:
        answer = front.app.test_client().post(
            door.path, json=said, headers={"Authorization": door.connector.authorization}
        )
        assert answer.status_code == 202, answer.text
        return str((answer.json or {})["taskId"])

    with ThreadPoolExecutor(8) as pool:
        (task_id,) = set(pool.map(push, range(20)))
    assert sql(front, "SELECT count(*) FROM task_turns WHERE task_id = :id", id=task_id) == [(1,)]


def test_message_text_is_stored_only_in_the_task(door: Door) -> None:
    door.taken("a secret")
    assert door.rows()[-1].request is None


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"messageId": "m"}, 422, "validation_failed"),
        ({"text": "hello"}, 422, "field_required"),
        ({"messageId": "", "text": "hello"}, 422, "validation_failed"),
        ({"messageId": "m", "text": ""}, 422, "validation_failed"),
        ({"messageId": "m", "text": "hello", "purpose": "x"}, 400, "unknown_parameter"),
        ({"messageId": "m", "text": "hello", "role": "x"}, 400, "unknown_parameter"),
        ([], 400, "malformed_json"),
    ],
)
def test_malformed_messages_are_refused(door: Door, body: Any, status: int, code: str) -> None:
    answer = door.post(door.connector.authorization, json=body)
    assert (answer.status_code, (answer.json or {})["code"]) == (status, code)


def test_token_of_another_distribution_is_refused(front: Front, door: Door) -> None:
    stranger = make_door(front)
    answer = door.push(authorization=stranger.connector.authorization)
    assert (answer.status_code, (answer.json or {})["code"]) == (404, "not_found")


def test_only_a_distribution_may_push(front: Front, door: Door) -> None:
    person = front.identity.person(door.connector.organization_id)
    assert door.push(authorization=person.authorization).status_code == 403
    assert door.post(json=message()).status_code == 401


def disable(front: Front, door: Door, what: str) -> None:
    connector = door.connector
    with front.services.database.transaction() as session:
        match what:
            case "distribution":
                disable_distribution(session, actor=OPERATOR, distribution_id=connector.id)
            case "deployment":
                disable_deployment(session, actor=OPERATOR, deployment_id=connector.deployment.deployment.id)
            case _:
                suspend_organization(session, actor=OPERATOR, organization_id=connector.organization_id)


@pytest.mark.parametrize(
    ("what", "status", "code"),
    [
        ("distribution", 401, "signature_invalid"),
        ("deployment", 409, "target_disabled"),
        ("organization", 403, "organization_suspended"),
    ],
)
def test_disabled_distribution_or_deployment_accepts_no_message(
    front: Front, what: str, status: int, code: str
) -> None:
    door = make_door(front)
    disable(front, door, what)
    answer = door.push_signed()
    assert (answer.status_code, (answer.json or {})["code"]) == (status, code)
    assert door.rows() == []


def test_daemon_without_model_execute_gets_no_message(front: Front) -> None:
    door = make_door(front)
    daemon = door.connector.deployment.deployment.daemon_identity_id
    sql(front, "DELETE FROM role_bindings WHERE subject_identity_id = :id", id=daemon)
    answer = door.push()
    assert (answer.status_code, (answer.json or {})["code"]) == (403, "permission_denied")
    assert door.rows() == []
