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
from tests.web.inbound.conftest import Door, make_door
from tests.web.media.conftest import fetch, sql

IMAGE = {"fileName": PNG.file_name, "mediaType": PNG.media_type}


def attach(url: str, **fields: Any) -> dict[str, Any]:
    return {"attachmentId": uuid4().hex, "url": url, **fields}


def said(door: Door, task_id: str) -> list[dict[str, Any]]:
    """Return the parts of the last message to a task's agent."""
    parts: list[dict[str, Any]] = door.settled(task_id)["history"][-1]["parts"]
    return parts


def test_a_message_waits_for_its_attachment_and_has_it_as_a_file(door: Door, source: MediaSource) -> None:
    url = source.serve("/image", content(PNG.content))
    taken = door.taken("What is this?", attachments=[attach(url, **IMAGE)])
    assert (taken["state"], [one["state"] for one in taken["imports"]]) == ("Waiting", ["Queued"])
    door.route()
    assert door.rows()[-1].state == "Waiting"
    fetch(door.front)
    door.route()
    text, file = said(door, taken["taskId"])
    assert text == {"text": "What is this?"}
    assert (file["filename"], file["mediaType"]) == (PNG.file_name, PNG.media_type)
    opened = door.front.get(file["url"])
    assert (opened.status_code, opened.data) == (200, PNG.content)


def test_the_file_is_the_receiving_identitys_and_held_by_the_task(door: Door, source: MediaSource) -> None:
    url = source.serve("/image", content(PNG.content))
    taken = door.taken(None, attachments=[attach(url, **IMAGE)])
    fetch(door.front)
    door.route()
    (file,) = sql(
        door.front,
        "SELECT files.* FROM files JOIN file_references ON file_id = files.id"
        " WHERE kind = 'Task' AND reference_id = :id",
        id=taken["taskId"],
    )
    assert (file.owner_id, file.purpose, file.payer_id) == (
        door.connector.principal_id,
        "MessagingMedia",
        door.connector.organization_id,
    )


def test_link_sent_to_the_agent_opens_the_file(door: Door, source: MediaSource) -> None:
    """This script's agent repeats what it has received."""
    url = source.serve("/image", content(PNG.content))
    taken = door.taken("echo", attachments=[attach(url, **IMAGE)])
    fetch(door.front)
    door.route()
    (row,) = sql(
        door.front, "SELECT message FROM task_messages WHERE task_id = :id AND number = 1", id=taken["taskId"]
    )
    assert "grant=" not in row.message
    assert "?grant=" in said(door, taken["taskId"])[1]["url"]


def test_media_that_was_pushed_before_is_named_by_its_id(door: Door) -> None:
    message = uuid4().hex
    pushed = door.connector.push_form(OGG, messageId=message, attachmentId="voice").json or {}
    taken = door.taken(None, messageId=message, attachments=[{"attachmentId": "voice"}])
    assert (taken["state"], taken["imports"][0]["fileId"]) == ("Routed", pushed["fileId"])
    (file,) = said(door, taken["taskId"])
    assert door.front.get(file["url"]).data == OGG.content


def test_media_that_was_not_pushed_is_not_found(door: Door) -> None:
    answer = door.push("here", attachments=[{"attachmentId": "nothing"}])
    assert (answer.status_code, (answer.json or {})["code"]) == (404, "import_not_found")


def test_an_attachment_that_fails_is_named_in_the_message(door: Door, source: MediaSource) -> None:
    gone = attach(source.serve("/gone", status(404)), fileName="gone.png")
    here = attach(source.serve("/image", content(PNG.content)), **IMAGE)
    taken = door.taken("Both", attachments=[gone, here])
    fetch(door.front)
    door.route()
    text, missing, file = said(door, taken["taskId"])
    assert (text["text"], missing["text"]) == ("Both", "[gone.png: media_gone]")
    assert file["filename"] == PNG.file_name


def test_waiting_message_is_forwarded_after_a_limit(door: Door) -> None:
    taken = door.taken("Late", attachments=[attach("http://127.0.0.1:9/never", fileName="late.png")])
    sql(
        door.front,
        "UPDATE distribution_messages SET created_at = now() - interval '1 day', due_at = now()"
        " WHERE message_id = :id",
        id=taken["messageId"],
    )
    door.route()
    assert [part["text"] for part in said(door, taken["taskId"])] == [
        "Late",
        "[late.png: not_received_in_time]",
    ]


@pytest.mark.parametrize("ahead_seconds", [0, 30])
def test_messages_of_a_conversation_keep_their_order(
    door: Door, source: MediaSource, monkeypatch: pytest.MonkeyPatch, ahead_seconds: int
) -> None:
    conversation = uuid4().hex
    url = source.serve("/image", content(PNG.content))
    with monkeypatch.context() as ahead:
        # Ids contain the time. This web process has a clock ahead of the other, so the first message has the larger id.
        ahead.setattr(ids, "time", SimpleNamespace(time_ns=lambda: time.time_ns() + ahead_seconds * 10**9))
        first = door.taken("first", conversationId=conversation, attachments=[attach(url, **IMAGE)])
    second = door.taken("second", conversationId=conversation)
    assert (first["state"], second["state"]) == ("Waiting", "Waiting")
    assert door.taken("elsewhere", conversationId=uuid4().hex)["state"] == "Routed"
    fetch(door.front)
    while door.route():
        pass
    turns = sql(
        door.front,
        "SELECT task_id::text FROM task_turns WHERE task_id = ANY (CAST(:ids AS uuid[])) ORDER BY id",
        ids=[first["taskId"], second["taskId"]],
    )
    assert [turn.task_id for turn in turns] == [first["taskId"], second["taskId"]]


def test_a_photo_answers_the_question_of_its_conversation(door: Door, source: MediaSource) -> None:
    conversation = uuid4().hex
    asking = door.taken("ask", conversationId=conversation)
    door.settled(asking["taskId"], "TASK_STATE_INPUT_REQUIRED")
    url = source.serve("/image", content(PNG.content))
    photo = door.taken(None, conversationId=conversation, attachments=[attach(url, **IMAGE)])
    assert photo["taskId"] == asking["taskId"]
    fetch(door.front)
    door.route()
    assert said(door, asking["taskId"])[0]["filename"] == PNG.file_name


def test_a_repeated_message_shows_how_its_imports_stand(door: Door, source: MediaSource) -> None:
    url = source.serve("/image", content(PNG.content))
    body = {"messageId": uuid4().hex, "text": "again", "attachments": [attach(url, **IMAGE)]}
    first = door.post(door.connector.authorization, json=body).json or {}
    fetch(door.front)
    door.route()
    again = door.post(door.connector.authorization, json=body).json or {}
    assert (again["taskId"], again["state"], again["replayed"]) == (first["taskId"], "Routed", True)
    assert [one["state"] for one in again["imports"]] == ["Stored"]


def test_other_attachments_under_the_same_id_are_a_conflict(door: Door, source: MediaSource) -> None:
    url = source.serve("/image", content(PNG.content))
    body = {"messageId": uuid4().hex, "text": "again", "attachments": [attach(url, **IMAGE)]}
    door.post(door.connector.authorization, json=body)
    answer = door.post(door.connector.authorization, json={**body, "attachments": []})
    assert (answer.status_code, (answer.json or {})["code"]) == (409, "message_conflict")


def test_distribution_without_file_permission_gets_no_attachments_and_no_earlier_imports(
    front: Front, source: MediaSource
) -> None:
    door = make_door(front)
    url = source.serve("/image", content(PNG.content))
    body = {"messageId": uuid4().hex, "text": "look", "attachments": [attach(url, **IMAGE)]}
    assert door.post(door.connector.authorization, json=body).status_code == 202
    daemon = door.connector.deployment.deployment.daemon_identity_id
    sql(front, "DELETE FROM role_bindings WHERE subject_identity_id = :id", id=daemon)
    for message in (body, {**body, "messageId": uuid4().hex}):
        answer = door.post(door.connector.authorization, json=message)
        assert (answer.status_code, (answer.json or {})["code"]) == (403, "permission_denied")
    assert len(door.rows()) == 1


def test_message_forbidden_while_waiting_is_refused_and_reported(front: Front, source: MediaSource) -> None:
    door = make_door(front)
    door.set_endpoint("https://bot.example/notifications")
    taken = door.taken("Wait", attachments=[attach(source.serve("/image", content(PNG.content)), **IMAGE)])
    fetch(front)
    daemon = door.connector.deployment.deployment.daemon_identity_id
    sql(front, "DELETE FROM role_bindings WHERE subject_identity_id = :id", id=daemon)
    door.route()
    (row,) = door.rows()
    assert (row.state, row.code, row.request) == ("Refused", "permission_denied", None)
    (told,) = door.notifications("message.refused")
    assert told["data"] == {
        "network": "standard",
        "messageId": taken["messageId"],
        "conversationId": None,
        "code": "permission_denied",
    }


@pytest.mark.parametrize(
    ("url", "code"),
    [("ftp://example.org/a", "validation_failed"), ("http://user:pass@example.org/", "url_refused")],
)
def test_an_address_that_could_not_be_fetched_is_refused_at_once(door: Door, url: str, code: str) -> None:
    answer = door.push("hello", attachments=[{"attachmentId": "a", "url": url}])
    assert (answer.status_code, (answer.json or {})["code"]) == (422, code)


def test_so_many_messages_wait_for_a_distribution_and_no_more(front: Front) -> None:
    door, conversation = make_door(front), uuid4().hex
    never = attach("http://127.0.0.1:9/never")
    assert door.taken("first", conversationId=conversation, attachments=[never])["state"] == "Waiting"
    assert receive_limited(door, conversation, limit=2) is MessageState.WAITING
    with pytest.raises(TooManyMessages):
        receive_limited(door, conversation, limit=2)
    assert len(door.rows()) == 2


def receive_limited(door: Door, conversation: str, *, limit: int) -> MessageState:
    """Accept a message that must wait for earlier ones of its conversation, with a limit on waiting messages."""
    services, settings = door.front.services, door.front.settings
    limited = MessageForwarder(
        settings=settings.model_copy(update={"queued_imports": limit}), router=services.agents.router
    )
    message = InboundMessage(
        network=STANDARD, message_id=uuid4().hex, conversation_id=conversation, text="behind"
    )
    with services.database.transaction() as session:
        return receive_message(session, limited, message, distribution_id=door.connector.id).message.state
