"""Skills in all forms of functions, and the task updates for their outputs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from quartermaster.agents import Agent, Artifact, Ask, Failed, Status
from sdk.tests.agents.served import Served, message, served, status_text, text_of

agent = Agent("Tester", "Says things.", version="1.2.3")
steps = threading.Semaphore(0)
begun, closed = threading.Event(), threading.Event()


@agent.skill(tags=["echo"], examples=["Say hello"], input_modes=["text/plain", "image/png"])
def echo(text: str) -> str:
    """Say it again."""
    return f"{text}!"


@agent.skill
async def later(text: str) -> str:
    await asyncio.sleep(0)
    return text


@agent.skill
def words(text: str) -> Iterator[str | Status]:
    yield Status("Thinking")
    for word in text.split():
        yield f"{word} "


@agent.skill(id="chunks", name="In chunks")
async def in_chunks(text: str) -> AsyncIterator[str]:
    for letter in text:
        await asyncio.sleep(0)
        yield letter


@agent.skill
def colour(text: str, task: Any) -> Iterator[Any]:
    if task is None:
        yield Ask("Which colour?")
        raise AssertionError("A question ends the turn.")
    yield f"{task.history[0].parts[0].text} in {text}"


@agent.skill
def values(data: list[Any], metadata: dict[str, Any]) -> dict[str, Any]:
    return {"given": data, "count": 2, "chosen": metadata["skillId"]}


@agent.skill
def raises(text: str) -> None:
    if text == "exit":
        raise SystemExit(3)
    if text == "stop":
        raise StopIteration("secret inside")
    if text == "plain":
        raise Failed("The photo is too dark.")
    raise RuntimeError("secret inside")


@agent.skill
async def raises_later() -> AsyncIterator[str]:
    yield "before "
    raise RuntimeError("secret inside")


@agent.skill
def nameless() -> Any:
    return b"bytes"


@agent.skill
def kept(text: str) -> Iterator[str]:
    try:
        begun.set()
        for at in range(100):
            yield f"{at} "
            steps.acquire()
    finally:
        closed.set()


@agent.skill
def notes(tmp: str = "") -> Artifact:
    return Artifact("# Notes", "notes.md", "text/markdown")


@agent.skill
def picture(files: Any) -> str:
    return ", ".join(f"{file.name} {file.media_type} {file.read().decode()}" for file in files)


@agent.skill
def drawing() -> Path:
    return Path(__file__)


@pytest.fixture(scope="module")
def tester() -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("BASE_URL", "API_KEY", "CLIENT_ID", "CLIENT_SECRET"):
            patch.delenv(f"SERVICE_{name}", raising=False)
        with served(agent, is_anonymous=True) as tester:
            yield tester


def said(tester: Served, text: str, skill: str, **members: Any) -> Any:
    return tester.send(text, more={"metadata": {"skillId": skill}, **members})


def test_the_card_says_what_the_functions_say(tester: Served) -> None:
    card = tester.ask("GET", "/.well-known/agent-card.json").json()
    assert (card["name"], card["description"], card["version"]) == ("Tester", "Says things.", "1.2.3")
    first = card["skills"][0]
    assert (first["id"], first["name"], first["description"]) == ("echo", "Echo", "Say it again.")
    assert (first["tags"], first["examples"]) == (["echo"], ["Say hello"])
    assert first["inputModes"] == ["text/plain", "image/png"]
    assert card["skills"][3]["name"] == "In chunks"
    assert [
        (at["protocolBinding"], at["url"], at["protocolVersion"]) for at in card["supportedInterfaces"]
    ] == [
        ("HTTP+JSON", tester.url, "1.0"),
        ("JSONRPC", f"{tester.url}/", "1.0"),
    ]
    assert card["capabilities"]["streaming"] is True


@pytest.mark.parametrize(
    ("skill", "answer"),
    [("echo", "red blue!"), ("later", "red blue"), ("words", "red blue "), ("chunks", "red blue")],
)
def test_every_kind_of_function_answers(tester: Served, skill: str, answer: str) -> None:
    task = said(tester, "red blue", skill)
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert text_of(task) == answer
    assert len(task["artifacts"]) == 1


def test_skill_is_selected_by_name_and_defaults_to_the_first(tester: Served) -> None:
    assert text_of(said(tester, "ab", "In chunks")) == "ab"
    assert text_of(tester.send("ab")) == "ab!"


def test_an_unknown_skill_is_refused_before_there_is_a_task(tester: Served) -> None:
    body = message("x", metadata={"skillId": "cook"})
    response = tester.ask("POST", "/message:send", json=body)
    assert response.status_code == 400
    assert "echo" in response.json()["error"]["message"]
    assert tester.call("SendMessage", body)["error"]["code"] == -32602


def test_a_stream_tells_states_and_chunks_in_their_order(tester: Served) -> None:
    events = tester.stream("a b", more={"metadata": {"skillId": "words"}})
    kinds = [next(iter(event)) for event in events]
    assert kinds == [
        "task",
        "statusUpdate",
        "statusUpdate",
        "artifactUpdate",
        "artifactUpdate",
        "statusUpdate",
    ]
    assert events[2]["statusUpdate"]["status"]["message"]["parts"][0]["text"] == "Thinking"
    assert [event["artifactUpdate"].get("append", False) for event in events[3:5]] == [False, True]
    assert events[5]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_a_question_waits_for_its_answer_in_the_same_context(tester: Served) -> None:
    task = said(tester, "A house", "colour")
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert status_text(task) == "Which colour?"
    answered = said(tester, "blue", "colour", taskId=task["id"])
    assert answered["status"]["state"] == "TASK_STATE_COMPLETED"
    assert (answered["id"], answered["contextId"]) == (task["id"], task["contextId"])
    assert text_of(answered) == "A house in blue"


def test_json_values_come_and_go(tester: Served) -> None:
    task = said(tester, "", "values", parts=[{"data": {"a": [1, None, "é"]}}, {"data": 7}])
    (part,) = task["artifacts"][0]["parts"]
    assert part["data"] == {"given": [{"a": [1, None, "é"]}, 7], "count": 2, "chosen": "values"}


@pytest.mark.parametrize(
    ("skill", "text"), [("raises", "x"), ("raises", "exit"), ("raises", "stop"), ("raises_later", "x")]
)
def test_an_exception_fails_the_task_and_tells_nothing(tester: Served, skill: str, text: str) -> None:
    body = message(text, metadata={"skillId": skill})
    task = tester.ask("POST", "/message:send", json=body)
    over_rpc = tester.call(
        "SendMessage", {**body, "message": {**body["message"], "messageId": f"{skill}-{text}"}}
    )
    for answer in (task.json()["task"], over_rpc["result"]["task"]):
        assert answer["status"]["state"] == "TASK_STATE_FAILED"
        assert status_text(answer) == "The agent could not finish this."
        assert "secret" not in str(answer)
    assert text_of(tester.send("still here")) == "still here!"


def test_a_failure_may_have_a_sentence_for_the_caller(tester: Served) -> None:
    task = said(tester, "plain", "raises")
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert status_text(task) == "The photo is too dark."


def test_bytes_without_a_name_are_a_mistake(tester: Served) -> None:
    assert said(tester, "x", "nameless")["status"]["state"] == "TASK_STATE_FAILED"


def test_text_with_a_name_stays_in_the_message(tester: Served) -> None:
    (artifact,) = said(tester, "x", "notes")["artifacts"]
    assert artifact["name"] == "notes.md"
    assert artifact["parts"] == [{"text": "# Notes", "filename": "notes.md", "mediaType": "text/markdown"}]


def test_files_come_as_they_are(tester: Served) -> None:
    parts = [{"raw": "aGVsbG8=", "filename": "a.txt", "mediaType": "text/plain"}]
    assert text_of(said(tester, "", "picture", parts=parts)) == "a.txt text/plain hello"


def test_an_address_outside_the_service_is_not_followed(tester: Served) -> None:
    parts = [{"url": f"{tester.url}/.well-known/agent-card.json", "filename": "card.json"}]
    task = said(tester, "", "picture", parts=parts)
    assert task["status"]["state"] == "TASK_STATE_FAILED"


def test_an_agent_without_a_service_sends_content_itself(tester: Served) -> None:
    (part,) = said(tester, "", "drawing")["artifacts"][0]["parts"]
    assert part["filename"] == Path(__file__).name
    assert "raw" in part


def test_cancelling_closes_the_generator_after_its_step(tester: Served) -> None:
    body = message("x", metadata={"skillId": "kept"}, configuration={"returnImmediately": True})
    task = tester.ask("POST", "/message:send", json=body).json()["task"]
    assert begun.wait(60)
    canceled = tester.ask("POST", f"/tasks/{task['id']}:cancel").json()
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
    steps.release()
    assert closed.wait(60)
    assert tester.ask("GET", f"/tasks/{task['id']}").json()["status"]["state"] == "TASK_STATE_CANCELED"
    assert tester.ask("POST", f"/tasks/{task['id']}:cancel").status_code == 400


def test_a_parameter_that_nothing_can_be_given_for_is_found_at_once() -> None:
    with pytest.raises(TypeError, match="txet"):

        @agent.skill
        def misspelt(txet: str) -> None: ...


def test_two_skills_need_two_names() -> None:
    with pytest.raises(ValueError, match="already"):
        agent.skill(id="echo")(lambda text: text)


def test_an_agent_without_skills_is_not_served() -> None:
    with pytest.raises(ValueError, match="no skill"):
        Agent("Empty", "Does nothing.").app(is_anonymous=True)
