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
from tests.web.inbound.conftest import DistributionClient, make_distribution_client, message
from tests.web.media.conftest import sql


def test_a_text_becomes_a_message_to_the_agent(distribution: DistributionClient) -> None:
    accepted = distribution.push_accepted("hello", conversationId="c-1")
    assert (accepted["state"], accepted["replayed"], accepted["code"]) == ("Routed", False, None)
    task = distribution.wait_for_state(accepted["taskId"])
    assert task["contextId"] == accepted["contextId"]
    (received,) = task["history"]
    assert (received["messageId"], received["role"], received["parts"]) == (
        accepted["messageId"],
        "ROLE_USER",
        [{"text": "hello"}],
    )


def test_the_receiving_identity_owns_and_the_organization_pays(distribution: DistributionClient) -> None:
    reported = {"id": "U1", "display": "Ada"}
    accepted = distribution.push_accepted(channel="telegram", reportedCaller=reported)
    (turn,) = sql(distribution.front, "SELECT * FROM task_turns WHERE task_id = :id", id=accepted["taskId"])
    assert (turn.owner_id, turn.payer_id, turn.distribution_id, parse(turn.reported_caller)) == (
        distribution.connector.principal_id,
        distribution.connector.organization_id,
        distribution.connector.id,
        reported,
    )
    assert parse(turn.request)["channel"] == "telegram"
    (task,) = sql(distribution.front, "SELECT * FROM tasks WHERE id = :id", id=accepted["taskId"])
    daemon = distribution.connector.deployment.deployment.daemon_identity_id
    assert (task.caller_id, task.principal_id) == (daemon, distribution.connector.principal_id)


def test_signed_message_needs_no_token(distribution: DistributionClient) -> None:
    response = distribution.push_signed("signed")
    assert response.status_code == 202, response.text
    forged = distribution.push_signed("forged", secret="whsec_" + "A" * 44)
    assert (forged.status_code, (forged.json or {})["code"]) == (401, "signature_invalid")


def test_signed_message_with_a_replaced_secret_is_refused(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution = make_distribution_client(front)

    def reach(name: str) -> None:
        if name == "message.received":
            monkeypatch.setattr(failpoints, "hit", lambda _: None)
            with front.services.database.transaction() as session:
                rotate_webhook_secret(
                    session,
                    front.settings,
                    actor=OPERATOR,
                    distribution_id=distribution.connector.id,
                    overlap_seconds=0,
                )

    monkeypatch.setattr(failpoints, "hit", reach)
    response = distribution.push_signed("signed")
    assert (response.status_code, (response.json or {})["code"]) == (401, "signature_invalid")
    assert distribution.rows() == []


def test_messages_of_a_conversation_share_a_context(distribution: DistributionClient) -> None:
    first, second = (distribution.push_accepted(conversationId="shared") for _ in range(2))
    other, alone = distribution.push_accepted(conversationId="other"), distribution.push_accepted()
    assert first["contextId"] == second["contextId"]
    assert len({first["contextId"], other["contextId"], alone["contextId"]}) == 3
    assert first["taskId"] != second["taskId"]


def test_reply_to_a_question_continues_its_task(distribution: DistributionClient) -> None:
    conversation = uuid4().hex
    asking = distribution.push_accepted("ask", conversationId=conversation)
    distribution.wait_for_state(asking["taskId"], "TASK_STATE_INPUT_REQUIRED")
    response = distribution.push_accepted("the second one", conversationId=conversation)
    assert response["taskId"] == asking["taskId"]
    distribution.wait_for_state(asking["taskId"])
    later = distribution.push_accepted("and now?", conversationId=conversation)
    assert later["taskId"] != asking["taskId"]


def test_repeated_message_returns_the_first_response(distribution: DistributionClient) -> None:
    body = message("once")
    first = distribution.post(distribution.connector.authorization, json=body).json or {}
    again = distribution.post(distribution.connector.authorization, json=body)
    assert (again.status_code, again.json) == (202, {**first, "replayed": True})
    assert sql(
        distribution.front, "SELECT count(*) FROM task_turns WHERE task_id = :id", id=first["taskId"]
    ) == [(1,)]


def test_message_id_is_unique_within_its_distribution(front: Front, distribution: DistributionClient) -> None:
    body, stranger = message("once"), make_distribution_client(front)
    first = distribution.post(distribution.connector.authorization, json=body).json or {}
    own = stranger.post(stranger.connector.authorization, json=body).json or {}
    assert (own["replayed"], own["taskId"] == first["taskId"]) == (False, False)


@pytest.mark.parametrize(
    "change",
    [{"text": "other"}, {"conversationId": "c"}, {"reportedCaller": {"id": "U2"}}, {"channel": "irc"}],
    ids=lambda change: next(iter(change)),
)
def test_same_message_id_with_other_content_is_a_conflict(
    distribution: DistributionClient, change: dict[str, Any]
) -> None:
    body = message("once")
    distribution.post(distribution.connector.authorization, json=body)
    response = distribution.post(distribution.connector.authorization, json={**body, **change})
    assert (response.status_code, (response.json or {})["code"]) == (409, "message_conflict")


def test_concurrent_pushes_create_one_message(front: Front, distribution: DistributionClient) -> None:
    body = message("at once")

    def push(_: int) -> str:
        response = front.app.test_client().post(
            distribution.path, json=body, headers={"Authorization": distribution.connector.authorization}
        )
        assert response.status_code == 202, response.text
        return str((response.json or {})["taskId"])

    with ThreadPoolExecutor(8) as pool:
        (task_id,) = set(pool.map(push, range(20)))
    assert sql(front, "SELECT count(*) FROM task_turns WHERE task_id = :id", id=task_id) == [(1,)]


def test_message_text_is_stored_only_in_the_task(distribution: DistributionClient) -> None:
    distribution.push_accepted("a secret")
    assert distribution.rows()[-1].request is None


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
def test_malformed_messages_are_refused(
    distribution: DistributionClient, body: Any, status: int, code: str
) -> None:
    response = distribution.post(distribution.connector.authorization, json=body)
    assert (response.status_code, (response.json or {})["code"]) == (status, code)


def test_token_of_another_distribution_is_refused(front: Front, distribution: DistributionClient) -> None:
    stranger = make_distribution_client(front)
    response = distribution.push(authorization=stranger.connector.authorization)
    assert (response.status_code, (response.json or {})["code"]) == (404, "not_found")


def test_only_a_distribution_may_push(front: Front, distribution: DistributionClient) -> None:
    person = front.identity.person(distribution.connector.organization_id)
    assert distribution.push(authorization=person.authorization).status_code == 403
    assert distribution.post(json=message()).status_code == 401


def disable(front: Front, distribution: DistributionClient, what: str) -> None:
    connector = distribution.connector
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
    distribution = make_distribution_client(front)
    disable(front, distribution, what)
    response = distribution.push_signed()
    assert (response.status_code, (response.json or {})["code"]) == (status, code)
    assert distribution.rows() == []


def test_daemon_without_model_execute_gets_no_message(front: Front) -> None:
    distribution = make_distribution_client(front)
    daemon = distribution.connector.deployment.deployment.daemon_identity_id
    sql(front, "DELETE FROM role_bindings WHERE subject_identity_id = :id", id=daemon)
    response = distribution.push()
    assert (response.status_code, (response.json or {})["code"]) == (403, "permission_denied")
    assert distribution.rows() == []
