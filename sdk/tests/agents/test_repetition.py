"""A message that is sent again creates no second task."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from quartermaster.agents import Agent, Ask
from sdk.tests.agents.served import Served, message, served, text_of

agent = Agent("Counter", "Counts how often it is asked.")
calls: list[str] = []
began = threading.Event()
go_on = threading.Event()


@agent.skill
def count(text: str, task: Any) -> Iterator[Any]:
    calls.append(text)
    began.set()
    yield f"{text} 1 "
    if text == "ask" and task is None:
        yield Ask("What?")
    assert go_on.wait(60)
    yield "2"


def forget() -> None:
    calls.clear()
    began.clear()


@pytest.fixture
def counter() -> Iterator[Served]:
    forget()
    go_on.set()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SERVICE_BASE_URL", raising=False)
        with served(agent, is_anonymous=True) as counter:
            yield counter


def test_the_same_message_is_answered_with_the_same_task(counter: Served) -> None:
    body = message("once")
    first = counter.ask("POST", "/message:send", json=body).json()["task"]
    again = counter.ask("POST", "/message:send", json=body).json()["task"]
    # Both bindings share one handler, so a repetition may come over the other.
    over_rpc = counter.call("SendMessage", body)["result"]["task"]
    assert first["id"] == again["id"] == over_rpc["id"]
    assert text_of(again) == text_of(over_rpc) == "once 1 2"
    assert calls == ["once"]


def test_a_key_says_that_two_messages_are_one(counter: Served) -> None:
    headers = {"Idempotency-Key": "turn-1"}
    first, again = (counter.send("once", headers=headers) for _ in range(2))
    other = counter.send("once", headers={"Idempotency-Key": "turn-2"})
    assert first["id"] == again["id"] != other["id"]
    assert calls == ["once", "once"]


def test_repetitions_at_the_same_time_wait_for_the_one_task(counter: Served) -> None:
    go_on.clear()
    body = message("slow")
    with ThreadPoolExecutor(6) as threads:
        sent = [threads.submit(counter.ask, "POST", "/message:send", json=body) for _ in range(3)]
        streamed = [threads.submit(counter.stream, "slow", more=body["message"]) for _ in range(3)]
        assert began.wait(60)
        go_on.set()
        tasks = [at.result().json()["task"] for at in sent]
        streams = [at.result() for at in streamed]
    assert len({task["id"] for task in tasks}) == 1
    assert {text_of(task) for task in tasks} == {"slow 1 2"}
    for *_, last in streams:  # a repetition after the end returns the task as it is
        said = last["statusUpdate"] if "statusUpdate" in last else last["task"]
        assert said["status"]["state"] == "TASK_STATE_COMPLETED"
    assert calls == ["slow"]


def test_a_repetition_that_is_read_slowly_is_told_of_the_end() -> None:
    """The task ends while the stream of the repetition still sends its first event."""
    forget()
    go_on.clear()
    body = message("slow")
    application = agent.app(is_anonymous=True)
    events: list[Any] = []

    async def stream_a_repetition() -> None:
        first = asyncio.create_task(post(application, "/message:send", body, taken))
        assert await asyncio.to_thread(began.wait, 60)

        async def taken_slowly(data: bytes) -> None:
            events.extend(json.loads(line[5:]) for line in data.splitlines() if line.startswith(b"data:"))
            go_on.set()
            await first

        await post(application, "/message:stream", body, taken_slowly)

    async def taken(data: bytes) -> None:
        assert json.loads(data)["task"]["status"]["state"] == "TASK_STATE_COMPLETED"

    asyncio.run(asyncio.wait_for(stream_a_repetition(), 60))
    assert events[0]["task"]["status"]["state"] == "TASK_STATE_WORKING"
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def post(application: Any, path: str, body: Any, take: Callable[[bytes], Awaitable[None]]) -> None:
    """Send a body to an application without a server; it waits until `take` has returned for each piece."""
    is_asked = False

    async def receive() -> Any:
        nonlocal is_asked
        if is_asked:
            # A second read waits, as it does while the client stays connected.
            await asyncio.sleep(60)
        is_asked = True
        return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

    async def send(part: MutableMapping[str, Any]) -> None:
        if part.get("body"):
            await take(part["body"])

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
        "server": ("localhost", 80),
        "client": ("127.0.0.1", 1),
    }
    await application(scope, receive, send)


def test_a_repetition_after_the_end_streams_the_task_as_it_is(counter: Served) -> None:
    body = message("done")
    counter.ask("POST", "/message:send", json=body)
    (event,) = counter.stream("done", more=body["message"])
    assert text_of(event["task"]) == "done 1 2"


def test_a_question_is_not_asked_twice(counter: Served) -> None:
    body = message("ask")
    for _ in range(2):
        task = counter.ask("POST", "/message:send", json=body).json()["task"]
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    answer = message("this", taskId=task["id"])
    for _ in range(2):
        answered = counter.ask("POST", "/message:send", json=answer).json()["task"]
        assert answered["status"]["state"] == "TASK_STATE_COMPLETED"
    assert calls == ["ask", "this"]


def test_a_message_that_was_refused_may_be_sent_again(counter: Served) -> None:
    body = message("early", taskId="nothing")
    headers = {"Idempotency-Key": "turn-1"}
    assert counter.ask("POST", "/message:send", json=body, headers=headers).status_code == 404
    assert text_of(counter.send("early", headers=headers)) == "early 1 2"


def test_a_client_that_leaves_finds_its_task_again(counter: Served) -> None:
    body = message("left", configuration={"returnImmediately": True})
    go_on.clear()
    task = counter.ask("POST", "/message:send", json=body).json()["task"]
    again = counter.ask("POST", "/message:send", json=body).json()["task"]
    assert again["id"] == task["id"]
    assert again["status"]["state"] == "TASK_STATE_WORKING"
    go_on.set()
    body["configuration"] = {}
    assert text_of(counter.ask("POST", "/message:send", json=body).json()["task"]) == "left 1 2"
