"""An A2A client for tests, which validates every response against the protocol's schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from werkzeug.test import TestResponse

from shared.a2a.exact_json import parse
from tests.contracts.a2a.schemas import check
from tests.support.web.web_process import Front


@dataclass(frozen=True, kw_only=False)
class Client:
    """A client of one agent; `prefix` is empty for the agent at the root."""

    front: Front
    prefix: str
    authorization: str | None
    headers: Mapping[str, str]

    def with_headers(self, **headers: str) -> Client:
        """Return a client with more headers; `A2A_Extensions` stands for A2A-Extensions."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return replace(self, headers={**self.headers, **named})

    def ask(self, method: str, path: str, **options: Any) -> TestResponse:
        headers = {**self.headers, **options.pop("headers", {})}
        answer = self.front.ask(method, self.prefix + path, self.authorization, headers=headers, **options)
        if answer.status_code >= 400:
            check("Error", json.loads(answer.get_data()))
        return answer

    def send(self, text: str = "hello", *, path: str = "/message:send", **more: Any) -> TestResponse:
        return self.ask("POST", path, json=request(text, **more))

    def task(self, text: str = "hello", **more: Any) -> dict[str, Any]:
        """Send a message and return its task."""
        answer = self.send(text, **more)
        assert answer.status_code == 200, answer.get_data(as_text=True)
        body = parse(answer.get_data())
        check("SendMessageResponse", body)
        task: dict[str, Any] = body["task"]
        return task

    def stream(self, text: str = "hello", **more: Any) -> list[dict[str, Any]]:
        """Send a message and return all events of its stream."""
        return events(self.send(text, path="/message:stream", **more))

    def read(self, task_id: str, query: str = "") -> dict[str, Any]:
        answer = self.ask("GET", f"/tasks/{task_id}{query}")
        assert answer.status_code == 200, answer.get_data(as_text=True)
        task: dict[str, Any] = parse(answer.get_data())
        check("Task", task)
        return task

    def list(self, query: str = "") -> dict[str, Any]:
        answer = self.ask("GET", f"/tasks{query}")
        assert answer.status_code == 200, answer.get_data(as_text=True)
        page: dict[str, Any] = parse(answer.get_data())
        check("ListTasksResponse", page)
        return page


def request(text: str, **more: Any) -> dict[str, Any]:
    """Return the body of a send; `more` contains members of the message, `configuration` or `metadata`."""
    beside: dict[str, Any] = {name: more.pop(name) for name in ("configuration", "metadata") if name in more}
    said = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}], **more}
    return {"message": said, **beside}


def events(answer: TestResponse) -> list[dict[str, Any]]:
    """Return the events of a stream that has ended."""
    assert answer.status_code == 200, answer.get_data(as_text=True)
    assert answer.mimetype == "text/event-stream"
    return list(read_events(answer.get_data(as_text=True)))


def read_events(text: str) -> Iterator[dict[str, Any]]:
    for block in text.split("\n\n"):
        data = [line[6:] for line in block.split("\n") if line.startswith("data: ")]
        if data:
            event = parse(data[0])
            if "error" not in event:
                check("StreamResponse", event)
            yield event


def reason(answer: TestResponse) -> str:
    """Return the reason of an error."""
    error = json.loads(answer.get_data())["error"]
    assert error["code"] == answer.status_code
    found: str = error["details"][0]["reason"]
    return found


def text_of(message: Mapping[str, Any]) -> str:
    return "\n".join(part["text"] for part in message["parts"] if "text" in part)


def states(stream: list[dict[str, Any]]) -> list[str]:
    """Return the states in a stream, beginning with the task's."""
    found = []
    for event in stream:
        status = event.get("task", event.get("statusUpdate", {})).get("status")
        if status:
            found.append(status["state"].removeprefix("TASK_STATE_"))
    return found
