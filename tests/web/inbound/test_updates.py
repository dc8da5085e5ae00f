"""The distribution's notification endpoint gets the agent's updates in order."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from shared.a2a.exact_json import parse
from shared.a2a.file_links import FileLinks
from shared.a2a.push.distribution_updates import link_files
from tests.support.agents.agent_worker import answering_turns
from tests.support.web.web_process import Front
from tests.web.inbound.conftest import DistributionClient, make_distribution_client
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
def notified(front: Front) -> Iterator[DistributionClient]:
    """A distribution with a notification endpoint."""
    with answering_turns(front.services):
        distribution = make_distribution_client(front, SCRIPT)
        distribution.set_endpoint(ENDPOINT)
        yield distribution
    front.services.agents.watch.close()


def updates_of(distribution: DistributionClient, task_id: str) -> list[dict[str, Any]]:
    return [
        sent["data"]
        for sent in distribution.notifications("message.update")
        if sent["data"]["taskId"] == task_id
    ]


def test_updates_are_delivered_in_order(notified: DistributionClient) -> None:
    accepted = notified.push_accepted("go", conversationId="c-1")
    task = notified.wait_for_state(accepted["taskId"])
    updates = updates_of(notified, accepted["taskId"])
    assert [one["sequence"] for one in updates] == list(range(1, len(updates) + 1))
    for one in updates:
        assert (one["messageId"], one["conversationId"], one["network"], one["contextId"]) == (
            accepted["messageId"],
            "c-1",
            "standard",
            accepted["contextId"],
        )
    texts = [
        part["text"]
        for one in updates
        for part in one["update"].get("artifactUpdate", {"artifact": {"parts": []}})["artifact"]["parts"]
        if "text" in part
    ]
    assert "".join(texts) == "Once upon a time"
    assert updates[-1]["update"]["statusUpdate"]["status"] == task["status"]


def test_updates_have_sequence_numbers_and_wait_for_earlier_ones(notified: DistributionClient) -> None:
    accepted = notified.push_accepted("go")
    notified.wait_for_state(accepted["taskId"])
    rows = sql(
        notified.front,
        "SELECT sequence, place FROM deliveries WHERE event = 'message.update' AND destination_id = :id ORDER BY id",
        id=notified.connector.id,
    )
    assert all(row.place is not None for row in rows)


def test_numbers_in_updates_keep_their_digits(notified: DistributionClient) -> None:
    accepted = notified.push_accepted("go")
    notified.wait_for_state(accepted["taskId"])
    bodies = sql(
        notified.front,
        "SELECT convert_from(body, 'UTF8') AS body FROM deliveries WHERE event = 'message.update'"
        " AND convert_from(body, 'UTF8') LIKE :task",
        task=f"%{accepted['taskId']}%",
    )
    assert any('"exact":1.10' in row.body for row in bodies)


def test_update_names_the_message_that_it_responds_to(notified: DistributionClient) -> None:
    conversation = uuid4().hex
    asking = notified.push_accepted("ask", conversationId=conversation)
    notified.wait_for_state(asking["taskId"], "TASK_STATE_INPUT_REQUIRED")
    response = notified.push_accepted("this one", conversationId=conversation)
    notified.wait_for_state(asking["taskId"])
    named = [one["messageId"] for one in updates_of(notified, asking["taskId"])]
    assert set(named) == {asking["messageId"], response["messageId"]}
    assert named == sorted(named, key=[asking["messageId"], response["messageId"]].index)


def test_update_contains_a_file_link_that_no_row_stores(notified: DistributionClient) -> None:
    accepted = notified.push_accepted("file")
    notified.wait_for_state(accepted["taskId"])
    (body,) = [
        bytes(row.body)
        for row in sql(notified.front, "SELECT body FROM deliveries WHERE event = 'message.update'")
        if accepted["taskId"].encode() in bytes(row.body) and b"report.txt" in bytes(row.body)
    ]
    assert b"grant=" not in body
    services = notified.front.services
    links = FileLinks(services.database, services.settings)
    with services.database.transaction() as session:
        sent = parse(link_files(session, links, body))
    (part,) = sent["data"]["update"]["artifactUpdate"]["artifact"]["parts"]
    assert notified.front.get(part["url"]).data == b"the report"


def test_direct_client_of_the_agent_causes_no_update_for_the_distribution(
    notified: DistributionClient,
) -> None:
    before = len(notified.notifications("message.update"))
    notified.agent.task("go")
    assert len(notified.notifications("message.update")) == before


def test_no_updates_are_stored_without_an_endpoint(front: Front, notified: DistributionClient) -> None:
    silent = make_distribution_client(front, SCRIPT)
    silent.wait_for_state(silent.push_accepted("go")["taskId"])
    assert silent.notifications("message.update") == []
