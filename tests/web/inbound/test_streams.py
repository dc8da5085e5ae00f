"""A distribution that requests a stream gets the agent's response to its message as events."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from werkzeug.test import TestResponse

from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.deployments import disable_deployment, enable_deployment
from shared.identity.directory.distributions import disable_distribution, rotate_webhook_secret
from tests.support.agents.agent_worker import answering_turns
from tests.support.data.media_samples import PNG
from tests.support.data.media_sources import MediaSource, content
from tests.support.processes.stack import wait_until
from tests.support.web.web_process import Front
from tests.web.a2a.asking import events, states
from tests.web.a2a.conftest import SCRIPT
from tests.web.inbound.conftest import Door, make_door, message
from tests.web.inbound.test_attachments import IMAGE, attach
from tests.web.media.conftest import fetch, sign
from web.framework.deferred_responses import PendingResponse
from web.inbound import streaming as door_streaming

FILE = """
  - match: {text: file}
    steps: [{artifact: {id: a, file: {name: report.txt, text: "the report"}}}, {complete: Done}]
"""
STREAM = {"Accept": "text/event-stream"}


@pytest.fixture(scope="module")
def asked(front: Front) -> Iterator[Door]:
    """A distribution whose agent follows the instructions in texts."""
    with answering_turns(front.services):
        yield make_door(front, SCRIPT.replace("rules:\n", f"rules:{FILE}"))
    front.services.agents.watch.close()


def stream(door: Door, said: dict[str, Any]) -> TestResponse:
    """Push a message and leave its stream open."""
    return door.post(door.connector.authorization, json=said, headers=STREAM, buffered=False)


def stream_signed(door: Door, said: dict[str, Any]) -> TestResponse:
    raw = json.dumps(said).encode()
    headers = {**STREAM, **sign(raw, door.connector.webhook_secret), "Content-Type": "application/json"}
    return door.post(data=raw, headers=headers, buffered=False)


@contextmanager
def streaming(
    door: Door, said: dict[str, Any], push: Callable[[Door, dict[str, Any]], TestResponse] = stream
) -> Iterator[list[TestResponse]]:
    """Push a message that has to wait. Its response is complete after the block."""
    before, answers = len(door.rows()), list[TestResponse]()
    pushing = threading.Thread(target=lambda: answers.append(push(door, said)))
    pushing.start()
    wait_until(lambda: len(door.rows()) > before, "the message has been taken")
    yield answers
    pushing.join()


def task_of(told: list[dict[str, Any]]) -> str:
    task_id: str = told[0]["task"]["id"]
    return task_id


def test_stream_begins_with_the_task_and_ends_with_the_reply(asked: Door) -> None:
    answer = stream(asked, message("work"))
    assert (answer.status_code, answer.mimetype) == (200, "text/event-stream")
    told = events(answer)
    assert (states(told)[0], states(told)[-1]) == ("SUBMITTED", "COMPLETED")
    pieces = [
        one["artifactUpdate"]["artifact"]["parts"][0]["text"] for one in told if "artifactUpdate" in one
    ]
    assert pieces == ["Once ", "upon ", "a time"]
    assert asked.agent.read(task_of(told))["status"]["state"] == "TASK_STATE_COMPLETED"


def test_a_signed_push_is_streamed_too(asked: Door) -> None:
    raw = b'{"messageId": "signed-1", "text": "work"}'
    signed = {**sign(raw, asked.connector.webhook_secret), "Content-Type": "application/json", **STREAM}
    assert states(events(asked.post(data=raw, headers=signed)))[-1] == "COMPLETED"


def test_repeated_push_streams_the_response_again(asked: Door) -> None:
    said = message("work")
    first = events(stream(asked, said))
    (again,) = events(stream(asked, said))
    assert (again["task"]["id"], again["task"]["status"]["state"]) == (task_of(first), "TASK_STATE_COMPLETED")
    plain = asked.post(asked.connector.authorization, json=said)
    assert (plain.status_code, (plain.json or {})["replayed"]) == (202, True)
    other = asked.post(asked.connector.authorization, json={**said, "text": "other"}, headers=STREAM)
    assert (other.status_code, (other.json or {})["code"]) == (409, "message_conflict")


def test_question_ends_the_stream_and_the_reply_has_its_own(asked: Door) -> None:
    asking = events(stream(asked, message("ask", conversationId="questions")))
    assert states(asking)[-1] == "INPUT_REQUIRED"
    answering = events(stream(asked, message("this one", conversationId="questions")))
    assert (task_of(answering), states(answering)[-1]) == (task_of(asking), "COMPLETED")


def test_files_have_links(asked: Door) -> None:
    told = events(stream(asked, message("file")))
    (part,) = next(one["artifactUpdate"] for one in told if "artifactUpdate" in one)["artifact"]["parts"]
    assert asked.front.get(part["url"]).text == "the report"


def test_message_waiting_for_an_attachment_is_streamed_after_routing(
    asked: Door, source: MediaSource
) -> None:
    url = source.serve("/image", content(PNG.content))
    with streaming(asked, message("hello", attachments=[attach(url, **IMAGE)])) as answers:
        fetch(asked.front)
        asked.route()
    (answer,) = answers
    assert (answer.status_code, states(events(answer))[-1]) == (200, "COMPLETED")


def test_a_stream_that_waits_ends_with_its_distribution(asked: Door, source: MediaSource) -> None:
    door, url = make_door(asked.front, SCRIPT), source.serve("/image", content(PNG.content))
    with (
        streaming(door, message("hello", attachments=[attach(url, **IMAGE)])) as answers,
        door.front.services.database.transaction() as session,
    ):
        disable_distribution(session, actor=OPERATOR, distribution_id=door.connector.id)
    (answer,) = answers
    assert (answer.json or {})["code"] == "distribution_disabled"


def test_a_signed_stream_that_waits_ends_with_its_secret(asked: Door, source: MediaSource) -> None:
    door, url = make_door(asked.front, SCRIPT), source.serve("/image", content(PNG.content))
    with (
        streaming(door, message("hello", attachments=[attach(url, **IMAGE)]), stream_signed) as answers,
        door.front.services.database.transaction() as session,
    ):
        rotate_webhook_secret(
            session,
            door.front.settings,
            actor=OPERATOR,
            distribution_id=door.connector.id,
            overlap_seconds=0,
        )
    (answer,) = answers
    assert (answer.json or {})["code"] == "signature_invalid"


def test_message_refused_later_ends_the_stream_with_an_error(asked: Door, source: MediaSource) -> None:
    url = source.serve("/image", content(PNG.content))
    door = make_door(asked.front, SCRIPT)
    said = message("hello", attachments=[attach(url, **IMAGE)])
    assert door.post(door.connector.authorization, json=said).status_code == 202
    fetch(door.front)
    with door.front.services.database.transaction() as session:
        disable_deployment(session, actor=OPERATOR, deployment_id=door.connector.deployment.deployment.id)
    door.route()
    with door.front.services.database.transaction() as session:
        enable_deployment(session, actor=OPERATOR, deployment_id=door.connector.deployment.deployment.id)
    refused = stream(door, said)
    assert (refused.status_code, (refused.json or {})["code"]) == (409, "message_refused")
    assert "target_disabled" in (refused.json or {})["detail"]


def test_message_not_routed_before_the_drain_must_be_sent_again(
    asked: Door, source: MediaSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait_while_stopping(*arguments: Any, **more: Any) -> PendingResponse:
        waiting = PendingResponse(*arguments, **more)
        waiting.shut_down()
        return waiting

    monkeypatch.setattr(door_streaming, "PendingResponse", wait_while_stopping)
    monkeypatch.setattr(door_streaming, "POLL_SECONDS", 0.05)
    door, url = make_door(asked.front, SCRIPT), source.serve("/image", content(PNG.content))
    said = message("hello", attachments=[attach(url, **IMAGE)])
    for _ in range(2):  # the second push is recognized as a repetition
        refused = stream(door, said)
        assert (refused.status_code, (refused.json or {})["code"]) == (503, "unavailable")
        assert refused.headers["Retry-After"] == "1"
    assert len(door.rows()) == 1
