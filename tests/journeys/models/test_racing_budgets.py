"""Two hundred calls over a tiny budget of each kind, while web processes and workers die: no budget is exceeded."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import requests

from tests.journeys.models.asking import scripted
from tests.support.data.inventory import Connection, ask, connect, query
from tests.support.models.model_service import ModelService
from tests.support.processes.stack import Service, TookTooLong, free_port, wait_until

CALLS = 200
THREADS = 6
"""Of each kind."""
AFFORDABLE = 5
CHAT = {"model": "fake/chat", "max_tokens": 20}
LEFT = "SELECT id::text, amount, spent + held, spent FROM budgets WHERE id = ANY(%s::uuid[])"
REFUSED = {
    "credits": (402, "budget_exceeded"),
    "requests": (429, "rate_limit_exceeded"),
    "tokens": (429, "rate_limit_exceeded"),
}


@dataclass
class Race:
    """The calls of one subject over a budget of its own."""

    service: ModelService
    authorization: str
    subject: dict[str, str]
    unit: str
    period: str
    budget_id: str = ""
    answers: Counter[tuple[int, str]] = field(default_factory=Counter)
    _numbers: Any = field(default_factory=itertools.count)

    @property
    def path(self) -> str:
        return f"{self.service.front.url}/admin/organizations/{self.service.organization_id}/budgets"

    def prepare(self) -> None:
        """Create the budget for a number of calls, using the cost that a refusal reports."""
        owner = {"Authorization": f"Bearer {self.service.api_key}"}
        new = {**self.subject, "unit": self.unit, "period": self.period, "amount": "0"}
        made = requests.post(self.path, json=new, headers=owner, timeout=60)
        assert made.status_code == 201, made.text
        self.budget_id = made.json()["id"]
        status, error = self.call(self.service.front)
        assert (status, error["code"]) == REFUSED[self.unit]
        amount = f"{float(error['required']) * AFFORDABLE:.6f}".rstrip("0").rstrip(".")
        changed = requests.patch(
            f"{self.path}/{self.budget_id}", json={"amount": amount}, headers=owner, timeout=60
        )
        assert changed.status_code == 200, changed.text

    def call(self, front: Service) -> tuple[int, Any]:
        text = scripted(chunks=10, delay_seconds=0.01)
        answer = requests.post(
            f"{front.url}/v1/chat/completions",
            json={**CHAT, "messages": [{"role": "user", "content": text}]},
            headers={"Authorization": self.authorization},
            timeout=60,
        )
        return answer.status_code, answer.json().get("error")

    def run(self, fronts: list[Service]) -> None:
        """Make one call after another, until all calls of the race are made."""
        while (number := next(self._numbers)) < CALLS:
            try:
                status, error = self.call(fronts[number % len(fronts)])
                self.answers[status, error["code"] if error else ""] += 1
            except (OSError, requests.RequestException, ValueError):
                self.answers[0, "died"] += 1
                time.sleep(0.05)


class Watch:
    """Polls the budgets continuously, and keeps the maximum use of each."""

    def __init__(self, service: ModelService, races: list[Race]) -> None:
        self._service, self._ids = service, [race.budget_id for race in races]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.exceeded: list[tuple[Any, ...]] = []
        self.most: dict[str, int] = dict.fromkeys(self._ids, 0)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        with self._connect() as connection:
            while not self._over.wait(0.02):
                self._look_by(connection)

    def look(self) -> None:
        with self._connect() as connection:
            self._look_by(connection)

    def _connect(self) -> contextlib.AbstractContextManager[Connection]:
        return connect(self._service.stack)

    def _look_by(self, connection: Connection) -> None:
        for budget_id, amount, taken, spent in ask(connection, LEFT, (self._ids,)):
            self.most[budget_id] = max(self.most[budget_id], taken)
            if taken > amount:
                self.exceeded.append((budget_id, amount, taken, spent))


def make_races(service: ModelService) -> list[Race]:
    make, organization_id = service.identity, service.organization_id

    def of_a_key(kind: str, unit: str, period: str) -> Race:
        person = make.person(organization_id, bound=True)
        subject_id = person.api_key_id if kind == "api_key" else person.user_id
        return race(person.authorization, kind, subject_id, unit, period)

    def of_a_deployment(kind: str, period: str) -> Race:
        made = make.deployment(organization_id)
        subject_id = made.deployment.id if kind == "deployment" else made.deployment.daemon_identity_id
        return race(make.authorization(made), kind, subject_id, "credits", period)

    def race(authorization: str, kind: str, subject_id: UUID | None, unit: str, period: str) -> Race:
        subject = {"subjectKind": kind, "subjectId": str(subject_id)}
        return Race(service, authorization, subject, unit, period)

    return [
        of_a_key("api_key", "credits", "once"),
        of_a_key("user", "credits", "day"),
        of_a_deployment("identity", "week"),
        of_a_deployment("deployment", "month"),
        of_a_key("api_key", "requests", "minute"),
        of_a_key("api_key", "tokens", "minute"),
    ]


def kill_in_turn(victims: list[Service], races: list[Race]) -> None:
    """Kill and restart each process, at equal intervals of all calls."""
    for number, victim in enumerate(victims, start=1):
        part = CALLS * len(races) * number // (len(victims) + 1)
        wait_until(lambda part=part: made(races) >= part, "calls are made")  # type: ignore[misc]
        victim.kill()
        victim.start()


def made(races: list[Race]) -> int:
    return sum(race.answers.total() for race in races)


def test_budgets_are_never_exceeded_by_racing_calls_while_processes_die(service: ModelService) -> None:
    races = make_races(service)
    for race in races:
        race.prepare()
    fronts = [service.front, service.stack.web(port=free_port())]
    workers = [service.stack.worker("models") for _ in range(2)]
    with service.stack.running(fronts[1], *workers), Watch(service, races) as watch:
        wait_until(lambda: all(worker.has_logged(" ready.") for worker in workers), "the workers are ready")
        threads = [
            threading.Thread(target=race.run, args=(fronts,)) for race in races for _ in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        kill_in_turn([workers[0], fronts[1], workers[1], fronts[0]], races)
        for thread in threads:
            thread.join()
        with contextlib.suppress(TookTooLong):
            service.wait_until_settled(seconds=3)
    service.front.wait_until_answering()
    service.sweep()
    watch.look()
    assert watch.exceeded == []
    for race in races:
        assert race.answers.total() == CALLS
        assert race.answers[200, ""] > 0, race.answers
        assert race.answers[REFUSED[race.unit]] > 0, race.answers
        assert watch.most[race.budget_id] > 0
    # The use of each budget equals the ledger's; the fixture reconciles the accounts after each journey.
    held = query(service.stack, "SELECT sum(held) FROM budgets")
    assert [int(row[0]) for row in held] == [0]
