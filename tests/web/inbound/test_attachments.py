"""Attachments are imported first. Then the agent gets one message that contains them as files."""

import time
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from shared import ids
from shared.a2a.inbound.errors import TooManyMessages
from shared.a2a.inbound.forwarder import MessageForwarder
from shared.a2a.inbound.intake import receive_message
from shared.a2a.inbound.messages import InboundMessage, MessageState
from shared.media.importing.imports import STANDARD
from tests.support.data.media_samples import OGG, PNG
from tests.support.data.media_sources import MediaSource, content, status
from tests.support.web.web_process import Front
from tests.web.inbound.conftest import DistributionClient, make_distribution_client
from tests.web.media.conftest import fetch, sql

IMAGE = {"fileName": PNG.file_name, "mediaType": PNG.media_type}


def attach(url: str, **fields: Any) -> dict[str, Any]:
    return {"attachmentId": uuid4().hex, "url": url, **fields}


def received_parts(distribution: DistributionClient, task_id: str) -> list[dict[str, Any]]:
    """Return the parts of the last message to a task's agent."""
    parts: list[dict[str, Any]] = distribution.wait_for_state(task_id)["history"][-1]["parts"]
    return parts


def test_message_waits_for_its_attachment_and_contains_its_file(
    distribution: DistributionClient, source: MediaSource
) -> None:
    url = source.serve("/image", content(PNG.content))
    accepted = distribution.push_accepted("What is this?", attachments=[attach(url, **IMAGE)])
    assert (accepted["state"], [one["state"] for one in accepted["imports"]]) == ("Waiting", ["Queued"])
    distribution.route()
    assert distribution.rows()[-1].state == "Waiting"
    fetch(distribution.front)
    distribution.route()
    text, file = received_parts(distribution, accepted["taskId"])
    assert text == {"text": "What is this?"}
    assert (file["filename"], file["mediaType"]) == (PNG.file_name, PNG.media_type)
    opened = distribution.front.get(file["url"])
    assert (opened.status_code, opened.data) == (200, PNG.content)


def test_receiving_identity_owns_the_file_and_the_task_refers_to_it(
    distribution: DistributionClient, source: MediaSource
) -> None:
    url = source.serve("/image", content(PNG.content))
    accepted = distribution.push_accepted(None, attachments=[attach(url, **IMAGE)])
    fetch(distribution.front)
    distribution.route()
    (file,) = sql(
        distribution.front,
        "SELECT files.* FROM files JOIN file_references ON file_id = files.id"
        " WHERE kind = 'Task' AND reference_id = :id",
        id=accepted["taskId"],
    )
    assert (file.owner_id, file.purpose, file.payer_id) == (
        distribution.connector.principal_id,
        "MessagingMedia",
        distribution.connector.organization_id,
    )


def test_link_sent_to_the_agent_opens_the_file(distribution: DistributionClient, source: MediaSource) -> None:
    """This script's agent repeats what it has received."""
    url = source.serve("/image", content(PNG.content))
    accepted = distribution.push_accepted("echo", attachments=[attach(url, **IMAGE)])
    fetch(distribution.front)
    distribution.route()
    (row,) = sql(
        distribution.front,
        "SELECT message FROM task_messages WHERE task_id = :id AND number = 1",
        id=accepted["taskId"],
    )
    assert "grant=" not in row.message
    assert "?grant=" in received_parts(distribution, accepted["taskId"])[1]["url"]


def test_attachment_without_url_refers_to_media_pushed_before(distribution: DistributionClient) -> None:
    message = uuid4().hex
    pushed = distribution.connector.push_form(OGG, messageId=message, attachmentId="voice").json or {}
    accepted = distribution.push_accepted(None, messageId=message, attachments=[{"attachmentId": "voice"}])
    assert (accepted["state"], accepted["imports"][0]["fileId"]) == ("Routed", pushed["fileId"])
    (file,) = received_parts(distribution, accepted["taskId"])
    assert distribution.front.get(file["url"]).data == OGG.content


def test_attachment_without_url_or_pushed_media_is_not_found(distribution: DistributionClient) -> None:
    response = distribution.push("here", attachments=[{"attachmentId": "nothing"}])
    assert (response.status_code, (response.json or {})["code"]) == (404, "import_not_found")


def test_failed_attachment_is_named_in_the_message(
    distribution: DistributionClient, source: MediaSource
) -> None:
    gone = attach(source.serve("/gone", status(404)), fileName="gone.png")
    here = attach(source.serve("/image", content(PNG.content)), **IMAGE)
    accepted = distribution.push_accepted("Both", attachments=[gone, here])
    fetch(distribution.front)
    distribution.route()
    text, missing, file = received_parts(distribution, accepted["taskId"])
    assert (text["text"], missing["text"]) == ("Both", "[gone.png: media_gone]")
    assert file["filename"] == PNG.file_name


def test_waiting_message_is_forwarded_after_a_limit(distribution: DistributionClient) -> None:
    accepted = distribution.push_accepted(
        "Late", attachments=[attach("http://127.0.0.1:9/never", fileName="late.png")]
    )
    sql(
        distribution.front,
        "UPDATE distribution_messages SET created_at = now() - interval '1 day', due_at = now()"
        " WHERE message_id = :id",
        id=accepted["messageId"],
    )
    distribution.route()
    assert [part["text"] for part in received_parts(distribution, accepted["taskId"])] == [
        "Late",
        "[late.png: not_received_in_time]",
    ]


@pytest.mark.parametrize("ahead_seconds", [0, 30])
def test_messages_of_a_conversation_keep_their_order(
    distribution: DistributionClient, source: MediaSource, monkeypatch: pytest.MonkeyPatch, ahead_seconds: int
) -> None:
    conversation = uuid4().hex
    url = source.serve("/image", content(PNG.content))
    with monkeypatch.context() as ahead:
        # Ids contain the time. This web process has a clock ahead of the other, so the first message has the larger id.
        ahead.setattr(ids, "time", SimpleNamespace(time_ns=lambda: time.time_ns() + ahead_seconds * 10**9))
        first = distribution.push_accepted(
            "first", conversationId=conversation, attachments=[attach(url, **IMAGE)]
        )
    second = distribution.push_accepted("second", conversationId=conversation)
    assert (first["state"], second["state"]) == ("Waiting", "Waiting")
    assert distribution.push_accepted("elsewhere", conversationId=uuid4().hex)["state"] == "Routed"
    fetch(distribution.front)
    while distribution.route():
        pass
    turns = sql(
        distribution.front,
        "SELECT task_id::text FROM task_turns WHERE task_id = ANY (CAST(:ids AS uuid[])) ORDER BY id",
        ids=[first["taskId"], second["taskId"]],
    )
    assert [turn.task_id for turn in turns] == [first["taskId"], second["taskId"]]


def test_attachment_replies_to_the_question_of_its_conversation(
    distribution: DistributionClient, source: MediaSource
) -> None:
    conversation = uuid4().hex
    asking = distribution.push_accepted("ask", conversationId=conversation)
    distribution.wait_for_state(asking["taskId"], "TASK_STATE_INPUT_REQUIRED")
    url = source.serve("/image", content(PNG.content))
    photo = distribution.push_accepted(None, conversationId=conversation, attachments=[attach(url, **IMAGE)])
    assert photo["taskId"] == asking["taskId"]
    fetch(distribution.front)
    distribution.route()
    assert received_parts(distribution, asking["taskId"])[0]["filename"] == PNG.file_name


def test_repeated_message_returns_the_states_of_its_imports(
    distribution: DistributionClient, source: MediaSource
) -> None:
    url = source.serve("/image", content(PNG.content))
    body = {"messageId": uuid4().hex, "text": "again", "attachments": [attach(url, **IMAGE)]}
    first = distribution.post(distribution.connector.authorization, json=body).json or {}
    fetch(distribution.front)
    distribution.route()
    again = distribution.post(distribution.connector.authorization, json=body).json or {}
    assert (again["taskId"], again["state"], again["replayed"]) == (first["taskId"], "Routed", True)
    assert [one["state"] for one in again["imports"]] == ["Stored"]


def test_same_message_id_with_other_attachments_is_a_conflict(
    distribution: DistributionClient, source: MediaSource
) -> None:
    url = source.serve("/image", content(PNG.content))
    body = {"messageId": uuid4().hex, "text": "again", "attachments": [attach(url, **IMAGE)]}
    distribution.post(distribution.connector.authorization, json=body)
    response = distribution.post(distribution.connector.authorization, json={**body, "attachments": []})
    assert (response.status_code, (response.json or {})["code"]) == (409, "message_conflict")


def test_distribution_without_file_permission_gets_no_attachments_and_no_earlier_imports(
    front: Front, source: MediaSource
) -> None:
    distribution = make_distribution_client(front)
    url = source.serve("/image", content(PNG.content))
    body = {"messageId": uuid4().hex, "text": "look", "attachments": [attach(url, **IMAGE)]}
    assert distribution.post(distribution.connector.authorization, json=body).status_code == 202
    daemon = distribution.connector.deployment.deployment.daemon_identity_id
    sql(front, "DELETE FROM role_bindings WHERE subject_identity_id = :id", id=daemon)
    for message in (body, {**body, "messageId": uuid4().hex}):
        response = distribution.post(distribution.connector.authorization, json=message)
        assert (response.status_code, (response.json or {})["code"]) == (403, "permission_denied")
    assert len(distribution.rows()) == 1


def test_message_forbidden_while_waiting_is_refused_and_reported(front: Front, source: MediaSource) -> None:
    distribution = make_distribution_client(front)
    distribution.set_endpoint("https://bot.example/notifications")
    accepted = distribution.push_accepted(
        "Wait", attachments=[attach(source.serve("/image", content(PNG.content)), **IMAGE)]
    )
    fetch(front)
    daemon = distribution.connector.deployment.deployment.daemon_identity_id
    sql(front, "DELETE FROM role_bindings WHERE subject_identity_id = :id", id=daemon)
    distribution.route()
    (row,) = distribution.rows()
    assert (row.state, row.code, row.request) == ("Refused", "permission_denied", None)
    (notification,) = distribution.notifications("message.refused")
    assert notification["data"] == {
        "network": "standard",
        "messageId": accepted["messageId"],
        "conversationId": None,
        "code": "permission_denied",
    }


@pytest.mark.parametrize(
    ("url", "code"),
    [("ftp://example.org/a", "validation_failed"), ("http://user:pass@example.org/", "url_refused")],
)
def test_attachment_url_that_is_not_allowed_is_refused_at_once(
    distribution: DistributionClient, url: str, code: str
) -> None:
    response = distribution.push("hello", attachments=[{"attachmentId": "a", "url": url}])
    assert (response.status_code, (response.json or {})["code"]) == (422, code)


def test_waiting_messages_of_a_distribution_are_limited(front: Front) -> None:
    distribution, conversation = make_distribution_client(front), uuid4().hex
    never = attach("http://127.0.0.1:9/never")
    assert (
        distribution.push_accepted("first", conversationId=conversation, attachments=[never])["state"]
        == "Waiting"
    )
    assert receive_limited(distribution, conversation, limit=2) is MessageState.WAITING
    with pytest.raises(TooManyMessages):
        receive_limited(distribution, conversation, limit=2)
    assert len(distribution.rows()) == 2


def receive_limited(distribution: DistributionClient, conversation: str, *, limit: int) -> MessageState:
    """Accept a message that must wait for earlier ones of its conversation, with a limit on waiting messages."""
    services, settings = distribution.front.services, distribution.front.settings
    limited = MessageForwarder(
        settings=settings.model_copy(update={"queued_imports": limit}), router=services.agents.router
    )
    message = InboundMessage(
        network=STANDARD, message_id=uuid4().hex, conversation_id=conversation, text="behind"
    )
    with services.database.transaction() as session:
        return receive_message(
            session, limited, message, distribution_id=distribution.connector.id
        ).message.state
