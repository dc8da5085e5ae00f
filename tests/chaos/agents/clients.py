"""Clients of an agent: they retry a message under its key until they receive a response, and resume lost streams."""

import itertools
import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import requests

from tests.chaos.agents.script import ASK, HANG, INTERRUPTED, STORY, STORY_TEXT, book_of, outline
from tests.chaos.installation import Installation
from tests.chaos.models.calls import PIECE, Manner, PlannedCall
from tests.chaos.retrying_client import (
    ATTEMPT_SECONDS,
    GIVE_UP_SECONDS,
    TRANSIENT,
    NoDefiniteResponse,
    Send,
    recording_failure,
)
from tests.support.agents.rest_clients import Client, open_link

BREATH_SECONDS = 0.05
PING_SECONDS, MOST_PINGS = 1.0, 120
VERIFIED = 20
SCRIPTED, MODEL = "script", "fake/chat"
"""The kinds of agents, the second named for its model."""
FIRST_NUMBER = 100_000
"""Of calls to models through an agent, with as many for each client."""
TERMINAL = ("COMPLETED", "FAILED", "CANCELED", "REJECTED")


@dataclass(kw_only=True)
class Talk:
    """An acknowledged task: its subject, and every event that its client has received, by sequence number."""

    task_id: str
    about: str
    name: str
    prefix: str
    is_posted: bool = False
    planned_call: PlannedCall | None = None
    heard: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def last_heard(self) -> int:
        return max(self.heard, default=0)


class AgentClient:
    """A client thread of one caller."""

    def __init__(
        self,
        installation: Installation,
        number: int,
        agents: Mapping[str, str],
        caller: Client,
        endpoint: str,
    ) -> None:
        """Store the paths of these agents, by kind of agent."""
        self._random = installation.chance(f"agents/{number}")
        self._numbers = itertools.count(FIRST_NUMBER * (number + 1))
        self._fronts = installation.fronts
        self._retrying_client = installation.retrying_client
        self._observations = installation.observations
        self._agents = agents
        self._caller = caller
        self._endpoint = endpoint
        self.talks: list[Talk] = []
        self.pings = 0

    def run_until(self, over: threading.Event) -> None:
        """Run one conversation after another until the run is over; finish the one that has begun."""
        talks = {self._tell: 8, self._ask: 3, self._hang: 2, self._ping: 2}
        if MODEL in self._agents:
            talks[self._consult] = 5
        with recording_failure(self._observations, "a client of agents"):
            while not over.is_set():
                self._random.choices(list(talks), list(talks.values()))[0]()
                time.sleep(BREATH_SECONDS)

    def verify(self) -> None:
        """Read some of the tasks and the files that they link to."""
        try:
            for talk in self._random.sample(self.talks, min(VERIFIED, len(self.talks))):
                self._verify(talk)
        except NoDefiniteResponse as error:
            self._observations.violate(str(error))

    def _tell(self) -> None:
        """Have the agent tell a story: block on the response, follow the stream, or fetch the result at the end."""
        name = f"{self._random.getrandbits(64):x}"
        way = self._random.choice(("wait", "follow", "follow", "leave"))
        configuration: dict[str, Any] = {"returnImmediately": way != "wait"}
        if self._random.random() < 0.3:
            configuration["taskPushNotificationConfig"] = {"url": f"{self._endpoint}/{name}"}
        talk = self._send(f"story {name}", name, "story", configuration)
        if talk is not None and way == "follow":
            self._follow(talk)

    def _consult(self) -> None:
        """Have a model behind the agent reply; its upstream and the ledger identify the call by its number."""
        number = next(self._numbers)
        script = {"chunks": self._random.randint(1, 40), "delay_seconds": 0.02, "usage": "own chunk"}
        planned_call = PlannedCall(
            number=number, model=MODEL, is_chat=True, manner=Manner.WHOLE, script=script
        )
        text, name = planned_call.prompt(), f"{self._random.getrandbits(64):x}"
        talk = self._send(text, name, "reply", {"returnImmediately": self._random.random() < 0.5}, kind=MODEL)
        if talk is not None:
            talk.planned_call = planned_call

    def _ask(self) -> None:
        """Reply to a question of the agent; the reply is sent under a key too."""
        name = f"{self._random.getrandbits(64):x}"
        talk = self._send(f"ask {name}", name, "ask", {})
        if talk is None or not self._waits_for_us(talk):
            return
        again = self._send("that one", f"{name}-answer", "ask", {}, task_id=talk.task_id)
        self._require(
            again is not None and again.task_id == talk.task_id, f"the answer to {talk.task_id} went astray"
        )

    def _hang(self) -> None:
        """Start a task that never ends, and cancel it."""
        name = f"{self._random.getrandbits(64):x}"
        talk = self._send(f"hang {name}", name, "hang", {"returnImmediately": True})
        if talk is None:
            return
        path = f"{talk.prefix}/tasks/{talk.task_id}:cancel"
        answer = self._asked(lambda front: self._request(front, "POST", path))
        # The response to the first attempt may have been lost: then the task is canceled already.
        is_cancelled = answer.status_code == 200 or "TASK_NOT_CANCELABLE" in answer.text
        self._require(is_cancelled, f"cancelling {talk.task_id}: {answer.status_code} {answer.text}")

    def _ping(self) -> None:
        """Request a message instead of a task, twice under one key, and expect the same message both times."""
        key = f"{self._random.getrandbits(64):x}"
        replies = [self._pinged(key) for _ in range(2)]
        self.pings += 1
        said = [reply.get("parts", [{}])[0].get("text") for reply in replies]
        self._require(said == ["pong", "pong"], f"pings of {key} were answered {replies}")
        ids = {reply.get("messageId") for reply in replies}
        self._require(len(ids) == 1, f"one ping was answered by two messages: {replies}")

    def _pinged(self, key: str) -> dict[str, Any]:
        """Retry until the agent has replied.

        A web process that shuts down returns the unfinished task, which has the reply later.
        """
        for _ in range(MOST_PINGS):
            answer = self._asked(self._sending("ping", key, {}, prefix=self._agents[SCRIPTED])).json()
            reply: dict[str, Any] = answer.get("message") or answer.get("task", {}).get("status", {}).get(
                "message", {}
            )
            if reply or "task" not in answer:
                break
            time.sleep(PING_SECONDS)
        return reply

    def _send(
        self,
        text: str,
        key: str,
        about: str,
        configuration: dict[str, Any],
        *,
        task_id: str | None = None,
        kind: str = SCRIPTED,
    ) -> Talk | None:
        """Send a message until it is acknowledged; at random, send it twice."""
        prefix = self._agents[kind]
        send = self._sending(text, key, configuration, task_id=task_id, prefix=prefix)
        answers = [self._asked(send) for _ in range(self._random.choice((1, 1, 2)))]
        tasks = [answer.json().get("task", {}) for answer in answers]
        ids = {task.get("id") for task in tasks}
        if any(answer.status_code != 200 for answer in answers) or len(ids) != 1 or None in ids:
            self._observations.violate(f"{text}: {[(answer.status_code, answer.text) for answer in answers]}")
            return None
        is_posted = "taskPushNotificationConfig" in configuration
        talk = Talk(task_id=tasks[0]["id"], about=about, name=key, prefix=prefix, is_posted=is_posted)
        if task_id is None:
            self.talks.append(talk)
            self._observations.acknowledge("task")
        return talk

    def _sending(
        self,
        text: str,
        key: str,
        configuration: dict[str, Any],
        *,
        prefix: str,
        task_id: str | None = None,
    ) -> Send:
        message: dict[str, Any] = {"messageId": key, "role": "ROLE_USER", "parts": [{"text": text}]}
        if task_id is not None:
            message["taskId"] = task_id
        body = {"message": message, "configuration": configuration}
        path = f"{prefix}/message:send"
        return lambda front: self._request(front, "POST", path, json=body, headers={"Idempotency-Key": key})

    def _waits_for_us(self, talk: Talk) -> bool:
        """Wait until the agent has asked for input. Return False if the task has failed instead."""
        gives_up_at = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < gives_up_at:
            state = _state_of(self._read(talk))
            if state in ("INPUT_REQUIRED", *TERMINAL):
                return state == "INPUT_REQUIRED"
            time.sleep(BREATH_SECONDS * 4)
        raise NoDefiniteResponse(f"task {talk.task_id} never asked back")

    def _follow(self, talk: Talk) -> None:
        """Follow a task to its end and resume after the last event received; every event arrives once and in order."""
        gives_up_at = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < gives_up_at:
            front = self._random.choice(self._fronts)
            try:
                if self._follow_once(front, talk):
                    return
            except requests.RequestException as error:
                self._observations.count_retry(type(error).__name__)
            time.sleep(BREATH_SECONDS * 2)
        raise NoDefiniteResponse(f"task {talk.task_id} was followed for {GIVE_UP_SECONDS:.0f} s")

    def _follow_once(self, front: str, talk: Talk) -> bool:
        """Read one stream until it ends or breaks. Return whether the task is over."""
        headers = {"Last-Event-ID": str(talk.last_heard), "Accept": "text/event-stream"}
        path = f"{talk.prefix}/tasks/{talk.task_id}:subscribe"
        with self._request(front, "POST", path, headers=headers, stream=True) as answer:
            if answer.status_code == 400 and "UNSUPPORTED_OPERATION" in answer.text:
                return self._has_heard_all(talk)
            if answer.status_code != 200:
                self._require(
                    answer.status_code in TRANSIENT, f"following: {answer.status_code} {answer.text}"
                )
                return False
            for number, event in _numbered(answer):
                self._require(
                    number == talk.last_heard + 1, f"event {number} of {talk.task_id} after {talk.last_heard}"
                )
                talk.heard[number] = event
        return bool(talk.heard) and outline([talk.heard[talk.last_heard]])[0] in TERMINAL

    def _has_heard_all(self, talk: Talk) -> bool:
        """Return whether a task that is over has no more events after the last one received."""
        said = outline([talk.heard[talk.last_heard]])[0] if talk.heard else None
        self._require(said in TERMINAL, f"task {talk.task_id} says that it is over, after {said}")
        return True

    def _verify(self, talk: Talk) -> None:
        task = self._read(talk)
        state = _state_of(task)
        self._observations.count_read(f"task {state}")
        expected = {"story": STORY[-1], "ask": ASK[-1], "hang": HANG[0][-1], "reply": "COMPLETED"}[talk.about]
        if state == "FAILED" and talk.planned_call is not None:
            return  # The service never calls a model a second time for one message.
        if state == "FAILED":
            said = task["status"].get("message", {}).get("parts", [{}])[0].get("text")
            self._require(said == INTERRUPTED, f"task {talk.task_id} failed: {said}")
        elif state != expected:
            self._observations.violate(f"task {talk.task_id} ({talk.about}) is {state}")
        elif talk.about == "story":
            self._verify_story(talk, {at["artifactId"]: at["parts"] for at in task["artifacts"]})
        elif talk.planned_call is not None:
            said = "".join(part["text"] for artifact in task["artifacts"] for part in artifact["parts"])
            self._require(said == PIECE * talk.planned_call.chunks, f"task {talk.task_id} replied {said!r}")

    def _verify_story(self, talk: Talk, artifacts: dict[str, list[dict[str, Any]]]) -> None:
        told = "".join(part["text"] for part in artifacts["story"])
        self._require(told == STORY_TEXT, f"task {talk.task_id} tells {told!r}")
        (part,) = artifacts["book"]
        book = self._asked(lambda front: open_link(part["url"], via=front, timeout_seconds=ATTEMPT_SECONDS))
        self._require(
            book.content == book_of(talk.name), f"book of {talk.task_id}: {book.status_code} {book.text}"
        )

    def _read(self, talk: Talk) -> dict[str, Any]:
        path = f"{talk.prefix}/tasks/{talk.task_id}"
        answer = self._asked(lambda front: self._request(front, "GET", path))
        self._require(answer.status_code == 200, f"task {talk.task_id}: {answer.status_code} {answer.text}")
        task: dict[str, Any] = answer.json()
        return task

    def _request(self, front: str, method: str, path: str, **more: Any) -> requests.Response:
        headers = {"A2A-Version": "1.0", **more.pop("headers", {})}
        return self._caller.request(method, path, via=front, headers=headers, **more)

    def _asked(self, send: Send) -> requests.Response:
        return self._retrying_client.ask("agent", send)

    def _require(self, condition: bool, what: str) -> None:
        if not condition:
            self._observations.violate(what)


def _state_of(task: dict[str, Any]) -> str:
    state: str = task["status"]["state"]
    return state.removeprefix("TASK_STATE_")


def _numbered(answer: requests.Response) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield numbered events. A stream that ends with an error event counts as lost."""
    number = 0
    for line in answer.iter_lines():
        name, _, value = line.partition(b": ")
        if name == b"id":
            number = int(value)
        elif name == b"data" and number:
            yield number, json.loads(value)
            number = 0
