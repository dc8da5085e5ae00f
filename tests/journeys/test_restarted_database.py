"""Postgres restarts under load: 503 with Retry-After meanwhile, service soon after, and no partial state."""

import threading
from collections.abc import Callable
from uuid import UUID, uuid4

import pytest
import requests

from tests.journeys.conftest import assert_nothing_left_over
from tests.support.agents.rest_clients import Client
from tests.support.processes.stack import Servers, Stack, wait_until

CLIENTS = 4
PAUSE_SECONDS = 0.2
"""After a refusal: every one is repeated in the end, and a front that refuses does so very often."""

pytestmark = pytest.mark.usefixtures("workers")


@pytest.mark.parametrize("restart", ["kill", "stop"])
def test_service_resumes_without_partial_state_after_postgres_restarts(
    stack: Stack, servers: Servers, agent: Client, restart: str
) -> None:
    load = Load(agent)
    with load:
        load.wait_for_success()
        {"kill": servers.postgres.kill, "stop": servers.postgres.stop}[restart]()
        load.wait_for_refusal()
        servers.postgres.start()
        load.wait_for_success()
    for answer in load.refusals:
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1"), answer.text
    for operation, content in load.unanswered:
        assert agent.upload(content, operation=operation).status_code in (200, 201)
    assert_nothing_left_over(stack)
    for content, file in load.acknowledged:
        assert agent.download(file["id"]).content == content


class Load:
    """Clients that upload continuously and record every result."""

    def __init__(self, agent: Client) -> None:
        self._agent = agent
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._upload_repeatedly) for _ in range(CLIENTS)]
        self.acknowledged: list[tuple[bytes, dict[str, str]]] = []
        self.refusals: list[requests.Response] = []
        self.unanswered: list[tuple[UUID, bytes]] = []

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def wait_for_success(self) -> None:
        self._wait_for_more(lambda: len(self.acknowledged), "an upload is acknowledged")

    def wait_for_refusal(self) -> None:
        self._wait_for_more(lambda: len(self.refusals), "an upload is refused")

    def _wait_for_more(self, count: Callable[[], int], what: str) -> None:
        before = count()
        wait_until(lambda: count() > before, what)

    def _upload_repeatedly(self) -> None:
        while not self._over.is_set():
            operation = uuid4()
            content = operation.bytes * 1000
            try:
                answer = self._agent.upload(content, operation=operation)
            except requests.ConnectionError:
                self.unanswered.append((operation, content))
                self._over.wait(PAUSE_SECONDS)
                continue
            if answer.status_code == 201:
                self.acknowledged.append((content, answer.json()))
            else:
                self.refusals.append(answer)
                self.unanswered.append((operation, content))
                self._over.wait(PAUSE_SECONDS)
