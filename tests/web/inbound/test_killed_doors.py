"""`kill -9` of the web process or the worker at every step of a message: the agent gets it exactly once."""

import json
from typing import Any
from uuid import uuid4

import pytest

from shared.a2a.inbound.dispatcher import MessageDispatcher, route_due_messages
from shared.a2a.inbound.forwarder import MessageForwarder
from shared.a2a.tasks.router import Router
from shared.config.settings import Settings
from shared.db.database import Database
from tests.support.data.media_samples import PNG
from tests.support.data.media_sources import MediaSource, content
from tests.support.processes.killable_processes import die_at
from tests.web.inbound.conftest import Door, message
from tests.web.media import mortal_front
from tests.web.media.conftest import fetch, sql


def route(settings: Settings) -> None:
    """Route due messages in a process of its own."""
    door = MessageForwarder(settings=settings, router=Router.of(settings))
    route_due_messages(
        MessageDispatcher(database=Database(settings.database_url, pool_size=2), forwarder=door)
    )


def dies_pushing(door: Door, point: str, body: dict[str, Any]) -> bool:
    headers = {"Authorization": door.connector.authorization, "Content-Type": "application/json"}
    settings = door.front.settings.model_copy(update={"faults": point})
    options = {"data": json.dumps(body).encode()}
    return die_at(point, mortal_front.take, settings, door.path, headers, options)


@pytest.mark.parametrize(
    "point", ["send.before_commit", "message.before_commit", "jobs.before_publish", "message.taken"]
)
def test_a_text_is_sent_once_whenever_the_front_dies(door: Door, point: str) -> None:
    said = message("once")
    assert dies_pushing(door, point, said)
    again = door.post(door.connector.authorization, json=said).json or {}
    assert again["replayed"] is (point in ("jobs.before_publish", "message.taken"))
    turns = sql(
        door.front,
        "SELECT 1 FROM task_turns JOIN distribution_messages ON turn_id = task_turns.id WHERE message_id = :id",
        id=said["messageId"],
    )
    assert len(turns) == 1
    assert len(door.settled(again["taskId"])["history"]) == 1


@pytest.mark.parametrize("point", ["message.before_routed", "message.routed"])
def test_a_message_with_a_file_is_sent_once_whenever_the_worker_dies(
    door: Door, source: MediaSource, point: str
) -> None:
    url = source.serve("/image", content(PNG.content))
    taken = door.taken("once", attachments=[{"attachmentId": uuid4().hex, "url": url}])
    fetch(door.front)
    assert die_at(point, route, door.front.settings)
    door.route()
    assert len(door.settled(taken["taskId"])["history"]) == 1
    assert [row.state for row in door.rows() if row.message_id == taken["messageId"]] == ["Routed"]
    turns = sql(door.front, "SELECT 1 FROM task_turns WHERE task_id = :id", id=taken["taskId"])
    assert len(turns) == 1
