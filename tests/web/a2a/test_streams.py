"""Streams while nothing happens, and streams that fail."""

import json
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from shared.a2a.tasks.submission import show_task
from shared.errors import ServiceUnavailable
from shared.runtime.deferred_responses import THREAD_WAIT
from tests.contracts.a2a.schemas import check
from tests.web.a2a.asking import events, request, states
from tests.web.a2a.conftest import Cast
from web.a2a import streams


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the ten seconds without an event to zero."""
    monkeypatch.setattr(streams, "COMMENT_SECONDS", 0.05)


def test_silent_stream_sends_comments(cast: Cast, impatient: None) -> None:
    _, client = cast.new_agent("rules: [{steps: [{status: a}, {delay: 0.4}, {complete: b}]}]")
    answer = client.send(path="/message:stream")
    assert ": still working\n\n" in answer.get_data(as_text=True)
    assert answer.headers["Cache-Control"] == "no-cache"
    assert states(events(answer)) == ["SUBMITTED", "WORKING", "COMPLETED"]


def test_stream_without_a_message_shows_the_task_after_a_while(cast: Cast, impatient: None) -> None:
    _, client = cast.new_agent("rules: [{steps: [{delay: 0.4}, {message: pong}]}]")
    told = client.stream()
    assert states(told) == ["SUBMITTED", "COMPLETED"]
    assert client.list()["totalSize"] == 1


def test_failed_stream_ends_with_an_error_event() -> None:
    def breaking() -> streams.Frames:
        yield b"data: 1\n\n"
        yield b"data: 2\n\n"
        raise ServiceUnavailable

    steps = streams.stream_generator(breaking(), partial(streams.render_stream_error, request="r", host="h"))
    told = [step for step in steps if isinstance(step, bytes)]
    assert told[:2] == [b"data: 1\n\n", b"data: 2\n\n"]
    name, data, *_ = told[2].decode().split("\n")
    assert name == "event: error"
    body = json.loads(data.removeprefix("data: "))
    check("Error", body)
    assert (body["error"]["code"], body["error"]["status"]) == (503, "UNAVAILABLE")


@pytest.mark.parametrize("says_more", [True, False], ids=["message", "subscription"])
def test_a_stream_that_has_begun_waits_on_no_thread(cast: Cast, says_more: bool) -> None:
    asked: list[str] = []

    def wait_a_moment() -> float:
        asked.append("how long its thread may wait")
        return 0.0

    _, client = cast.new_agent("rules: [{steps: [{input_required: more}, {delay: 600}]}]")
    task = client.task("first")
    options: dict[str, Any] = {"buffered": False, "environ_overrides": {THREAD_WAIT: wait_a_moment}}
    if says_more:
        said = request("second", taskId=task["id"])
        stream = client.ask("POST", "/message:stream", json=said, **options)
    else:
        stream = client.ask("GET", f"/tasks/{task['id']}:subscribe", **options)
    pieces = iter(stream.response)
    assert b"data: " in next(pieces)
    while next(pieces):
        pass  # run until there is nothing to send
    stream.close()
    assert asked == []


def test_event_during_the_start_of_a_stream_is_sent_at_once(cast: Cast) -> None:
    _, client = cast.new_agent("rules: [{steps: [{input_required: more}]}]")
    task = client.task("first")
    held: dict[str, Any] = {THREAD_WAIT: lambda: 0.0}
    stream = client.ask("GET", f"/tasks/{task['id']}:subscribe", buffered=False, environ_overrides=held)
    with cast.front.services.agents.watch.watch(UUID(task["id"])) as told:
        assert client.ask("POST", f"/tasks/{task['id']}:cancel").status_code == 200
        assert told.wait(60)
    # No wake-up was received so far. Now the server reads the first pieces.
    pieces = iter(stream.response)
    assert b"INPUT_REQUIRED" in next(pieces)
    assert b"CANCELED" in next(pieces)
    stream.close()


def test_stream_continues_after_the_reply_to_an_earlier_message(cast: Cast) -> None:
    script = "rules: [{steps: [{status: a}, {delay: 0.6}, {input_required: more}, {complete: b}]}]"
    _, client = cast.new_agent(script)
    task = client.task("first", configuration={"returnImmediately": True})
    told = client.stream("second", taskId=task["id"])
    assert states(told)[-3:] == ["INPUT_REQUIRED", "SUBMITTED", "COMPLETED"]


def test_task_answered_with_a_message_is_not_shown(cast: Cast) -> None:
    _, client = cast.new_agent("rules: [{steps: [{message: pong}]}]")
    context = client.send("hello").get_json()["message"]["contextId"]
    database = cast.front.services.database
    with database.transaction() as session:
        statement = text("SELECT id FROM tasks WHERE context_id = :context")
        task_id = session.execute(statement, {"context": context}).scalar_one()
        assert not show_task(session, task_id)
    assert client.list()["totalSize"] == 0
