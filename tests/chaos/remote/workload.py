"""Streams through a remote agent, while web processes, workers and that agent are killed; every stream must be exact.

The agent is a2a-sdk's server, which keeps its tasks in files and continues them after a restart. Every stream must
therefore end, and have every number once.
"""

import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import Any

from tests.chaos.agents.clients import AgentClient, Talk
from tests.chaos.background_work import AGENTS
from tests.chaos.installation import Installation
from tests.chaos.observations import Observations
from tests.chaos.retrying_client import recording_failure
from tests.chaos.workload import Person, Workload
from tests.support.agents.a2a_sdk_process import GenuineAgent
from tests.support.data.inventory import query
from tests.support.processes.stack import TookTooLong, wait_until

CLIENTS = 16
REMOTE = "remote"
PAUSE_SECONDS = (2.0, 6.0)
"""Between two deaths of the agent."""
ALIVE_PART = 2.0
"""For so many times what its start takes the agent lives, or on a busy machine it would hardly ever be there."""
SETTINGS = {"EGRESS_ALLOW_PRIVATE": "true", "EGRESS_ALLOW_HTTP": "true", "A2A_WAIT_SECONDS": "10"}
_EVENTS = """
SELECT t.id::text, e.event::text FROM tasks t JOIN task_events e ON e.task_id = t.id
WHERE t.deployment_id = %s::uuid ORDER BY t.id, e.sequence
"""


class RemoteAgents(Workload):
    """Messages to an agent that counts, on a server of its own."""

    workers = {"agents": 2, "files": 1, "media": 1, "background": 1}  # noqa: RUF012
    waiting = (AGENTS,)

    def __init__(self, installation: Installation, closing: ExitStack) -> None:
        self._installation = installation
        directory = closing.enter_context(TemporaryDirectory(prefix="remote-agent-"))
        self._agent = GenuineAgent(store=directory)
        self._agent.start()
        closing.callback(self._agent.kill)
        made = installation.identity.deployment(installation.organization_id, REMOTE)
        self._deployment_id = made.deployment.id
        self._counters: list[Counting] = []
        installation.stack.environment.update(SETTINGS)

    def begin(self) -> Sequence[Person]:
        at, owner = self._installation, self._installation.owner()
        path = f"/admin/deployments/{self._deployment_id}/endpoint"
        owner.request("PUT", path, json={"url": self._agent.url}).raise_for_status()
        wait_until(lambda: owner.request("GET", path).json()["binding"], "the agent's card", seconds=60)
        paths = {REMOTE: f"/agents/{self._deployment_id}"}
        self._counters = [Counting(at, number, paths, owner, "") for number in range(CLIENTS)]
        return [*self._counters, Killer(self._agent, at.chance("remote agent"), at.observations)]

    def compare(self) -> Iterator[str]:
        logs: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for task_id, event in query(self._installation.stack, _EVENTS, (str(self._deployment_id),)):
            logs[task_id].append(json.loads(event))
        for talk in (talk for person in self._counters for talk in person.talks):
            yield from _compare(talk, logs[talk.task_id])


class Counting(AgentClient):
    """A client that has the agent count, and follows the stream."""

    def run_until(self, over: threading.Event) -> None:
        """Start one task after another, and follow each stream to its end."""
        with recording_failure(self._observations, "a client of a remote agent"):
            while not over.is_set():
                self._have_count()

    def _have_count(self) -> None:
        name, number = f"{self._random.getrandbits(64):x}", self._random.randint(10, 80)
        talk = self._send(f"count {number} 0.03", name, str(number), {"returnImmediately": True}, kind=REMOTE)
        if talk is not None:
            self._follow(talk)

    def _verify(self, talk: Talk) -> None:
        task = self._read(talk)
        told = "".join(part["text"] for part in task.get("artifacts", [{"parts": []}])[0]["parts"])
        self._observations.count_read(f"count {task['status']['state']}")
        self._require(told == counted(talk), f"remote task {talk.task_id} counts {told!r}")


class Killer:
    """Kills the agent now and then, and restarts it."""

    def __init__(self, agent: GenuineAgent, chance: random.Random, observations: Observations) -> None:
        self._agent = agent
        self._random = chance
        self._observations = observations

    def run_until(self, over: threading.Event) -> None:
        """Kill and restart until the run is over; then leave the agent running."""
        alive_seconds = 0.0
        while not over.wait(max(alive_seconds, self._random.uniform(*PAUSE_SECONDS))):
            self._agent.kill()
            time.sleep(self._random.uniform(0.0, 1.0))
            started_at = time.monotonic()
            try:
                self._agent.start()
            except TookTooLong as error:
                self._observations.violate(str(error))
            alive_seconds = (time.monotonic() - started_at) * ALIVE_PART
            self._observations.acknowledge("death of the remote agent")

    def verify(self) -> None:
        """Do nothing: this thread remembers nothing."""


def counted(talk: Talk) -> str:
    """Return what a task must report; its subject is a number."""
    return "".join(f"{number};" for number in range(int(talk.about)))


def _compare(talk: Talk, events: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield differences between a log and the agent's own; a repeated report that replaces itself counts as one."""
    updates = [event["artifactUpdate"] for event in events if "artifactUpdate" in event]
    told = "".join(part["text"] for update in updates for part in update["artifact"]["parts"])
    last = events[-1]["statusUpdate"]["status"] if events and "statusUpdate" in events[-1] else {}
    if told != counted(talk) or [update["append"] for update in updates].count(False) != 1:
        yield f"remote task {talk.task_id} was to count to {talk.about} and says {told!r}, then {last}"
    elif last.get("state") != "TASK_STATE_COMPLETED":
        yield f"remote task {talk.task_id} ends with {last}"
