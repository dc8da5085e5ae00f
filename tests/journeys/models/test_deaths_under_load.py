"""Continuous calls while workers, web process, Valkey and Postgres die in turn: all accounts agree in the end."""

from __future__ import annotations

import contextlib
import random
import threading
import time

import requests

from deploy.embedded.valkey import EmbeddedValkey
from tests.journeys.models.asking import ask, has_finished_well, listening, scripted
from tests.support.models.model_service import ModelService
from tests.support.processes.stack import Servers, Service, TookTooLong, free_port, wait_until

CLIENTS = 6
PAUSE_SECONDS = 0.7
FAILURES = (OSError, requests.RequestException, AssertionError, TookTooLong)


class Load:
    """Clients that make one call after another, whole or streamed, and sometimes disconnect early."""

    def __init__(self, service: ModelService, front: Service) -> None:
        self._service = service
        self._front = front
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._call, args=(seed,)) for seed in range(CLIENTS)]
        self.answered = 0

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _call(self, seed: int) -> None:
        chance = random.Random(seed)
        while not self._over.is_set():
            script = scripted(chunks=chance.randint(1, 30), delay_seconds=chance.choice([0, 0.01]))
            try:
                self._call_once(chance.choice(["whole", "streamed", "left"]), script)
            except FAILURES:
                time.sleep(0.05)
            except Exception as error:  # http.client has an exception hierarchy of its own.
                if type(error).__module__ != "http.client":
                    raise

    def _call_once(self, way: str, script: str) -> None:
        if way == "whole":
            self.answered += ask(self._service, script, front=self._front).status_code == 200
            return
        with listening(self._service, script, front=self._front) as stream:
            if way == "streamed":
                self.answered += has_finished_well(stream.read_to_end())
            else:
                stream.read_until("abc")


def test_accounts_agree_to_the_unit_after_every_process_has_died(
    service: ModelService, servers: Servers
) -> None:
    front = service.stack.web(port=free_port())
    workers = [service.stack.worker("models") for _ in range(2)]
    with service.stack.running(front, *workers), Load(service, front) as load:
        wait_until(lambda: load.answered > 5, "calls are answered")
        victims: list[Service | EmbeddedValkey] = [workers[0], front, workers[1], *servers.valkeys]
        for victim in victims * 2:
            time.sleep(PAUSE_SECONDS)
            victim.kill()
            victim.start()
        servers.postgres.kill()
        servers.postgres.start()
        before = load.answered
        wait_until(lambda: load.answered > before + 5, "calls are answered again")
    service.database.dispose()
    with contextlib.suppress(TookTooLong):
        service.wait_until_settled(seconds=3)
    service.sweep()
    assert len(service.upstream.served) > 50
