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
from tests.web.inbound.conftest import DistributionClient, make_distribution_client, message
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
def scripted(front: Front) -> Iterator[DistributionClient]:
    """A distribution whose agent follows the instructions in texts."""
    with answering_turns(front.services):
        yield make_distribution_client(front, SCRIPT.replace("rules:\n", f"rules:{FILE}"))
    front.services.agents.watch.close()


def stream(distribution: DistributionClient, body: dict[str, Any]) -> TestResponse:
    """Push a message and leave its stream open."""
    return distribution.post(distribution.connector.authorization, json=body, headers=STREAM, buffered=False)


def stream_signed(distribution: DistributionClient, body: dict[str, Any]) -> TestResponse:
    raw = json.dumps(body).encode()
    headers = {
        **STREAM,
        **sign(raw, distribution.connector.webhook_secret),
        "Content-Type": "application/json",
    }
    return distribution.post(data=raw, headers=headers, buffered=False)


@contextmanager
def streaming(
    distribution: DistributionClient,
    body: dict[str, Any],
    push: Callable[[DistributionClient, dict[str, Any]], TestResponse] = stream,
) -> Iterator[list[TestResponse]]:
    """Push a message that has to wait. Its response is complete after the block."""
    before, responses = len(distribution.rows()), list[TestResponse]()
    pushing = threading.Thread(target=lambda: responses.append(push(distribution, body)))
    pushing.start()
    wait_until(lambda: len(distribution.rows()) > before, "the message has been taken")
    yield responses
    pushing.join()


def task_of(received: list[dict[str, Any]]) -> str:
    task_id: str = received[0]["task"]["id"]
    return task_id


def test_stream_begins_with_the_task_and_ends_with_the_reply(scripted: DistributionClient) -> None:
    response = stream(scripted, message("work"))
    assert (response.status_code, response.mimetype) == (200, "text/event-stream")
    received = events(response)
    assert (states(received)[0], states(received)[-1]) == ("SUBMITTED", "COMPLETED")
    pieces = [
        one["artifactUpdate"]["artifact"]["parts"][0]["text"] for one in received if "artifactUpdate" in one
    ]
    assert pieces == ["Once ", "upon ", "a time"]
    assert scripted.agent.read(task_of(received))["status"]["state"] == "TASK_STATE_COMPLETED"


def test_signed_push_is_streamed(scripted: DistributionClient) -> None:
    raw = b'{"messageId": "signed-1", "text": "work"}'
    signed = {**sign(raw, scripted.connector.webhook_secret), "Content-Type": "application/json", **STREAM}
    assert states(events(scripted.post(data=raw, headers=signed)))[-1] == "COMPLETED"


def test_repeated_push_streams_the_response_again(scripted: DistributionClient) -> None:
    body = message("work")
    first = events(stream(scripted, body))
    (again,) = events(stream(scripted, body))
    assert (again["task"]["id"], again["task"]["status"]["state"]) == (task_of(first), "TASK_STATE_COMPLETED")
    plain = scripted.post(scripted.connector.authorization, json=body)
    assert (plain.status_code, (plain.json or {})["replayed"]) == (202, True)
    other = scripted.post(scripted.connector.authorization, json={**body, "text": "other"}, headers=STREAM)
    assert (other.status_code, (other.json or {})["code"]) == (409, "message_conflict")


def test_question_ends_the_stream_and_the_reply_has_its_own(scripted: DistributionClient) -> None:
    asking = events(stream(scripted, message("ask", conversationId="questions")))
    assert states(asking)[-1] == "INPUT_REQUIRED"
    answering = events(stream(scripted, message("this one", conversationId="questions")))
    assert (task_of(answering), states(answering)[-1]) == (task_of(asking), "COMPLETED")


def test_streamed_files_have_links(scripted: DistributionClient) -> None:
    received = events(stream(scripted, message("file")))
    (part,) = next(one["artifactUpdate"] for one in received if "artifactUpdate" in one)["artifact"]["parts"]
    assert scripted.front.get(part["url"]).text == "the report"


def test_message_waiting_for_an_attachment_is_streamed_after_routing(
    scripted: DistributionClient, source: MediaSource
) -> None:
    url = source.serve("/image", content(PNG.content))
    with streaming(scripted, message("hello", attachments=[attach(url, **IMAGE)])) as responses:
        fetch(scripted.front)
        scripted.route()
    (response,) = responses
    assert (response.status_code, states(events(response))[-1]) == (200, "COMPLETED")


def test_waiting_stream_ends_when_its_distribution_is_disabled(
    scripted: DistributionClient, source: MediaSource
) -> None:
    distribution, url = (
        make_distribution_client(scripted.front, SCRIPT),
        source.serve("/image", content(PNG.content)),
    )
    with (
        streaming(distribution, message("hello", attachments=[attach(url, **IMAGE)])) as responses,
        distribution.front.services.database.transaction() as session,
    ):
        disable_distribution(session, actor=OPERATOR, distribution_id=distribution.connector.id)
    (response,) = responses
    assert (response.json or {})["code"] == "distribution_disabled"


def test_waiting_signed_stream_ends_when_its_secret_is_replaced(
    scripted: DistributionClient, source: MediaSource
) -> None:
    distribution, url = (
        make_distribution_client(scripted.front, SCRIPT),
        source.serve("/image", content(PNG.content)),
    )
    with (
        streaming(
            distribution, message("hello", attachments=[attach(url, **IMAGE)]), stream_signed
        ) as responses,
        distribution.front.services.database.transaction() as session,
    ):
        rotate_webhook_secret(
            session,
            distribution.front.settings,
            actor=OPERATOR,
            distribution_id=distribution.connector.id,
            overlap_seconds=0,
        )
    (response,) = responses
    assert (response.json or {})["code"] == "signature_invalid"


def test_message_refused_later_ends_the_stream_with_an_error(
    scripted: DistributionClient, source: MediaSource
) -> None:
    url = source.serve("/image", content(PNG.content))
    distribution = make_distribution_client(scripted.front, SCRIPT)
    body = message("hello", attachments=[attach(url, **IMAGE)])
    assert distribution.post(distribution.connector.authorization, json=body).status_code == 202
    fetch(distribution.front)
    with distribution.front.services.database.transaction() as session:
        disable_deployment(
            session, actor=OPERATOR, deployment_id=distribution.connector.deployment.deployment.id
        )
    distribution.route()
    with distribution.front.services.database.transaction() as session:
        enable_deployment(
            session, actor=OPERATOR, deployment_id=distribution.connector.deployment.deployment.id
        )
    refused = stream(distribution, body)
    assert (refused.status_code, (refused.json or {})["code"]) == (409, "message_refused")
    assert "target_disabled" in (refused.json or {})["detail"]


def test_message_not_routed_before_the_drain_must_be_sent_again(
    scripted: DistributionClient, source: MediaSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait_while_stopping(*arguments: Any, **more: Any) -> PendingResponse:
        waiting = PendingResponse(*arguments, **more)
        waiting.shut_down()
        return waiting

    monkeypatch.setattr(door_streaming, "PendingResponse", wait_while_stopping)
    monkeypatch.setattr(door_streaming, "POLL_SECONDS", 0.05)
    distribution, url = (
        make_distribution_client(scripted.front, SCRIPT),
        source.serve("/image", content(PNG.content)),
    )
    body = message("hello", attachments=[attach(url, **IMAGE)])
    for _ in range(2):  # the second push is recognized as a repetition
        refused = stream(distribution, body)
        assert (refused.status_code, (refused.json or {})["code"]) == (503, "unavailable")
        assert refused.headers["Retry-After"] == "1"
    assert len(distribution.rows()) == 1
