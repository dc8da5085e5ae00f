"""The distribution's notification endpoint gets the agent's updates in order."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from shared.a2a.behaviors.file_links import FileLinks
from shared.a2a.exact_json import parse
from shared.a2a.inbound.updates import link_files
from tests.support.agents.agent_worker import answering_turns
from tests.support.web.web_process import Front
from tests.web.inbound.conftest import Door, make_door
from tests.web.media.conftest import sql

SCRIPT = """
rules:
  - match: {text: ask}
    steps: [{input_required: Which one}, {echo: complete}]
  - match: {text: file}
    steps: [{artifact: {id: a, file: {name: report.txt, text: "the report"}}}, {complete: Done}]
  - steps:
      - status: Reading
      - artifact: {id: a, chunks: ["Once ", "upon ", "a time"]}
      - artifact: {id: n, data: {exact: 1.10}}
      - complete: Done
"""
ENDPOINT = "https://bot.example/notifications"


@pytest.fixture(scope="module")
def told(front: Front) -> Iterator[Door]:
    """A distribution with a notification endpoint."""
    with answering_turns(front.services):
        door = make_door(front, SCRIPT)
        door.set_endpoint(ENDPOINT)
        yield door
    front.services.agents.watch.close()


def updates_of(door: Door, task_id: str) -> list[dict[str, Any]]:
    return [
        told["data"] for told in door.notifications("message.update") if told["data"]["taskId"] == task_id
    ]


def test_updates_are_delivered_in_order(told: Door) -> None:
    taken = told.taken("go", conversationId="c-1")
    task = told.settled(taken["taskId"])
    updates = updates_of(told, taken["taskId"])
    assert [one["sequence"] for one in updates] == list(range(1, len(updates) + 1))
    for one in updates:
        assert (one["messageId"], one["conversationId"], one["network"], one["contextId"]) == (
            taken["messageId"],
            "c-1",
            "standard",
            taken["contextId"],
        )
    texts = [
        part["text"]
        for one in updates
        for part in one["update"].get("artifactUpdate", {"artifact": {"parts": []}})["artifact"]["parts"]
        if "text" in part
    ]
    assert "".join(texts) == "Once upon a time"
    assert updates[-1]["update"]["statusUpdate"]["status"] == task["status"]


def test_updates_wait_for_each_other_and_carry_their_numbers(told: Door) -> None:
    taken = told.taken("go")
    told.settled(taken["taskId"])
    rows = sql(
        told.front,
        "SELECT sequence, place FROM deliveries WHERE event = 'message.update' AND destination_id = :id ORDER BY id",
        id=told.connector.id,
    )
    assert all(row.place is not None for row in rows)


def test_numbers_in_updates_keep_their_digits(told: Door) -> None:
    taken = told.taken("go")
    told.settled(taken["taskId"])
    bodies = sql(
        told.front,
        "SELECT convert_from(body, 'UTF8') AS body FROM deliveries WHERE event = 'message.update'"
        " AND convert_from(body, 'UTF8') LIKE :task",
        task=f"%{taken['taskId']}%",
    )
    assert any('"exact":1.10' in row.body for row in bodies)


def test_update_names_the_message_that_it_responds_to(told: Door) -> None:
    conversation = uuid4().hex
    asking = told.taken("ask", conversationId=conversation)
    told.settled(asking["taskId"], "TASK_STATE_INPUT_REQUIRED")
    answer = told.taken("this one", conversationId=conversation)
    told.settled(asking["taskId"])
    named = [one["messageId"] for one in updates_of(told, asking["taskId"])]
    assert set(named) == {asking["messageId"], answer["messageId"]}
    assert named == sorted(named, key=[asking["messageId"], answer["messageId"]].index)


def test_update_contains_a_file_link_that_no_row_stores(told: Door) -> None:
    taken = told.taken("file")
    told.settled(taken["taskId"])
    (body,) = [
        bytes(row.body)
        for row in sql(told.front, "SELECT body FROM deliveries WHERE event = 'message.update'")
        if taken["taskId"].encode() in bytes(row.body) and b"report.txt" in bytes(row.body)
    ]
    assert b"grant=" not in body
    services = told.front.services
    links = FileLinks(services.database, services.settings)
    with services.database.transaction() as session:
        sent = parse(link_files(session, links, body))
    (part,) = sent["data"]["update"]["artifactUpdate"]["artifact"]["parts"]
    assert told.front.get(part["url"]).data == b"the report"


def test_direct_client_of_the_agent_causes_no_update_for_the_distribution(told: Door) -> None:
    before = len(told.notifications("message.update"))
    told.agent.task("go")
    assert len(told.notifications("message.update")) == before


def test_no_updates_are_stored_without_an_endpoint(front: Front, told: Door) -> None:
    silent = make_door(front, SCRIPT)
    silent.settled(silent.taken("go")["taskId"])
    assert silent.notifications("message.update") == []
