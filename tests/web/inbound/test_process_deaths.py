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
from tests.web.inbound.conftest import DistributionClient, message
from tests.web.media import mortal_front
from tests.web.media.conftest import fetch, sql


def route(settings: Settings) -> None:
    """Route due messages in a process of its own."""
    forwarder = MessageForwarder(settings=settings, router=Router.of(settings))
    route_due_messages(
        MessageDispatcher(database=Database(settings.database_url, pool_size=2), forwarder=forwarder)
    )


def dies_while_pushing(distribution: DistributionClient, point: str, body: dict[str, Any]) -> bool:
    headers = {"Authorization": distribution.connector.authorization, "Content-Type": "application/json"}
    settings = distribution.front.settings.model_copy(update={"faults": point})
    options = {"data": json.dumps(body).encode()}
    return die_at(point, mortal_front.take, settings, distribution.path, headers, options)


@pytest.mark.parametrize(
    "point", ["send.before_commit", "message.before_commit", "jobs.before_publish", "message.taken"]
)
def test_text_is_sent_once_if_the_web_process_dies(distribution: DistributionClient, point: str) -> None:
    body = message("once")
    assert dies_while_pushing(distribution, point, body)
    again = distribution.post(distribution.connector.authorization, json=body).json or {}
    assert again["replayed"] is (point in ("jobs.before_publish", "message.taken"))
    turns = sql(
        distribution.front,
        "SELECT 1 FROM task_turns JOIN distribution_messages ON turn_id = task_turns.id WHERE message_id = :id",
        id=body["messageId"],
    )
    assert len(turns) == 1
    assert len(distribution.wait_for_state(again["taskId"])["history"]) == 1


@pytest.mark.parametrize("point", ["message.before_routed", "message.routed"])
def test_message_with_a_file_is_sent_once_if_the_worker_dies(
    distribution: DistributionClient, source: MediaSource, point: str
) -> None:
    url = source.serve("/image", content(PNG.content))
    accepted = distribution.push_accepted("once", attachments=[{"attachmentId": uuid4().hex, "url": url}])
    fetch(distribution.front)
    assert die_at(point, route, distribution.front.settings)
    distribution.route()
    assert len(distribution.wait_for_state(accepted["taskId"])["history"]) == 1
    assert [row.state for row in distribution.rows() if row.message_id == accepted["messageId"]] == ["Routed"]
    turns = sql(distribution.front, "SELECT 1 FROM task_turns WHERE task_id = :id", id=accepted["taskId"])
    assert len(turns) == 1
