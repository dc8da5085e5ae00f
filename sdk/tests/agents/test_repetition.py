"""A message that is sent again makes no second task."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from quartermaster.agents import Agent, Ask
from sdk.tests.agents.served import Served, message, served, text_of

agent = Agent("Counter", "Counts how often it is asked.")
calls: list[str] = []
go_on = threading.Event()


@agent.skill
def count(text: str, task: Any) -> Iterator[Any]:
    calls.append(text)
    yield f"{text} 1 "
    if text == "ask" and task is None:
        yield Ask("What?")
    assert go_on.wait(60)
    yield "2"


@pytest.fixture
def counter() -> Iterator[Served]:
    calls.clear()
    go_on.set()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SERVICE_BASE_URL", raising=False)
        with served(agent, is_anonymous=True) as counter:
            yield counter


def test_the_same_message_is_answered_with_the_same_task(counter: Served) -> None:
    body = message("once")
    first = counter.ask("POST", "/message:send", json=body).json()["task"]
    again = counter.ask("POST", "/message:send", json=body).json()["task"]
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
        while not calls:
            pass
        go_on.set()
        tasks = [at.result().json()["task"] for at in sent]
        streams = [at.result() for at in streamed]
    assert len({task["id"] for task in tasks}) == 1
    assert {text_of(task) for task in tasks} == {"slow 1 2"}
    for *_, last in streams:  # one that came after the end has the task as it is
        said = last["statusUpdate"] if "statusUpdate" in last else last["task"]
        assert said["status"]["state"] == "TASK_STATE_COMPLETED"
    assert calls == ["slow"]


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
