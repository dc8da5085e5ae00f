"""The workload of agents: it compares the logs of tasks with the agent's script."""

import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from tests.chaos.agents.clients import MODEL, SCRIPTED, AgentClient, Talk
from tests.chaos.agents.script import ASK, ATTEMPTS, HANG, SCRIPT, STORY, outline
from tests.chaos.background_work import AGENTS, DELIVERIES
from tests.chaos.installation import Installation
from tests.chaos.models.catalog import is_offered
from tests.chaos.unreliable_endpoint import UnreliableEndpoint
from tests.chaos.workload import Person, Workload
from tests.support.data.inventory import query

CLIENTS = 4
SETTINGS = {"EGRESS_ALLOW_PRIVATE": "true", "EGRESS_ALLOW_HTTP": "true", "A2A_WAIT_SECONDS": "10"}
_EVENTS = """
SELECT t.id::text, e.sequence, e.event::text FROM tasks t LEFT JOIN task_events e ON e.task_id = t.id
WHERE t.deployment_id = ANY(%s::uuid[]) ORDER BY t.id, e.sequence
"""
_ATTEMPTS = """
SELECT t.id::text, max(u.attempts) FROM tasks t JOIN task_turns u ON u.task_id = t.id
WHERE t.deployment_id = ANY(%s::uuid[]) GROUP BY 1
"""
_FILES = """
SELECT r.reference_id, count(*) FROM files f JOIN file_references r ON r.file_id = f.id AND r.kind = 'Task'
WHERE f.owner_id = ANY(%s::uuid[]) GROUP BY 1
"""
_CHARGES = """
SELECT prompt_tokens, completion_tokens, status, is_estimated FROM usage_records
WHERE deployment_id = ANY(%s::uuid[]) AND NOT is_estimated
"""

Log = list[tuple[int, dict[str, Any]]]


class Updates(UnreliableEndpoint):
    """The endpoint to which the service posts updates of tasks: one path for each task."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.told: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def take(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        del headers
        self.told[path.rpartition("/")[2]].append(json.loads(body))


class Agents(Workload):
    """Messages to a scripted agent and, if the models workload runs, to one with a model; and the resulting tasks."""

    workers = {"agents": 2, "files": 1, "media": 1, "background": 2, "ledger": 1}  # noqa: RUF012
    waiting = (AGENTS, DELIVERIES)

    def __init__(self, installation: Installation, closing: ExitStack) -> None:
        self._installation = installation
        self._people: Sequence[AgentClient] = ()
        kinds = {SCRIPTED: {"kind": "script", "script": SCRIPT}}
        if is_offered(installation.stack, MODEL):
            kinds[MODEL] = {"kind": "model", "model": MODEL}
        self._kinds = kinds
        self._deployments = {
            kind: installation.identity.deployment(installation.organization_id, kind).deployment
            for kind in kinds
        }
        self._updates = closing.enter_context(Updates(installation.chance("updates")))
        installation.stack.environment.update(SETTINGS)

    def begin(self) -> Sequence[Person]:
        at, owner, paths = self._installation, self._installation.owner(), {}
        for kind, deployment in self._deployments.items():
            behavior = {"name": "behavior", "description": "Answers.", **self._kinds[kind]}
            made = owner.request("POST", f"/admin/deployments/{deployment.id}/behaviors", json=behavior)
            made.raise_for_status()
            paths[kind] = f"/agents/{deployment.id}"
        self._people = [AgentClient(at, number, paths, owner, self._updates.url) for number in range(CLIENTS)]
        return self._people

    def compare(self) -> Iterator[str]:
        stack = self._installation.stack
        talks = {talk.task_id: talk for person in self._people for talk in person.talks}
        ids = [str(at.id) for at in self._deployments.values()]
        daemons = [str(at.daemon_identity_id) for at in self._deployments.values()]
        logs = self._read_logs(ids)
        attempts = dict(query(stack, _ATTEMPTS, (ids,)))
        books = dict(query(stack, _FILES, (daemons,)))
        charges = {row[0]: row[1:] for row in query(stack, _CHARGES, (ids,))}
        for task_id, talk in talks.items():
            log = logs.get(task_id)
            if log is None:
                yield f"task {task_id} was acknowledged and is lost"
                continue
            yield from _compare_log(talk, log, attempts[task_id])
            if talk.about == "story" and books.get(task_id, 0) not in _numbers_of_books(log):
                yield f"task {task_id} has {books.get(task_id, 0)} books"
            if talk.planned_call is not None and _said(log)[-1:] == ["COMPLETED"]:
                charge = charges.get(talk.planned_call.number)
                if charge != (talk.planned_call.chunks, "completed", False):
                    yield f"task {task_id} replied in {talk.planned_call.chunks} pieces and was charged {charge}"
        unasked = len(logs) - len(talks) - sum(person.pings for person in self._people)
        if unasked:
            yield f"{unasked} tasks more than messages were acknowledged"
        yield from self._compare_updates(talks, logs)

    def _read_logs(self, deployment_ids: Sequence[str]) -> dict[str, Log]:
        logs: dict[str, Log] = defaultdict(list)
        for task_id, sequence, event in query(self._installation.stack, _EVENTS, (deployment_ids,)):
            log = logs[task_id]
            if sequence is not None:
                log.append((sequence, json.loads(event)))
        return dict(logs)

    def _compare_updates(self, talks: dict[str, Talk], logs: dict[str, Log]) -> Iterator[str]:
        """Yield each update that was requested and not posted at least once with the content of the log."""
        for talk in talks.values():
            if not talk.is_posted:
                continue
            written = [event for _, event in logs.get(talk.task_id, ())]
            told = self._updates.told.get(talk.name, [])
            yield from (f"update of {talk.task_id} was not posted: {at}" for at in written if at not in told)
            yield from (
                f"posted of {talk.task_id} and not in its log: {at}" for at in told if at not in written
            )


def _compare_log(talk: Talk, log: Log, attempts: int) -> Iterator[str]:
    numbers = [number for number, _ in log]
    said = _said(log)
    if numbers != list(range(1, len(log) + 1)):
        yield f"task {talk.task_id} has events {numbers}"
    for number, event in talk.heard.items():
        if outline([event]) != said[number - 1 : number]:
            yield f"task {talk.task_id}: event {number} was told as {outline([event])} and is {said}"
    if talk.planned_call is not None:
        if said[:1] != ["WORKING"] or said[-1:] not in (["COMPLETED"], ["FAILED"]):
            yield f"task {talk.task_id} (reply) says {said}"
        return
    expected = {"story": (STORY,), "ask": (ASK,), "hang": HANG}[talk.about]
    if said in expected:
        return
    has_failed = said[-1:] == ["FAILED"] and any(said[:-1] == each[: len(said) - 1] for each in expected)
    if not has_failed or attempts < ATTEMPTS:
        yield f"task {talk.task_id} ({talk.about}, {attempts} attempts) says {said}"


def _numbers_of_books(log: Log) -> set[int]:
    """Return the numbers of the files in a log.

    A turn abandoned between storing and reporting leaves an unreported file.
    """
    said = _said(log)
    return {0, 1} if "book" not in said and said[-1:] == ["FAILED"] else {int("book" in said)}


def _said(log: Log) -> list[str]:
    return outline([event for _, event in log])
