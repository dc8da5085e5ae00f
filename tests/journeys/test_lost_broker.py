"""Valkey dies, loses its data, or hangs: uploads are still acknowledged, and every one is placed."""

import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from uuid import uuid4

import pytest
import redis
import requests

from shared.files.lifecycle.placement import PlaceStaged
from shared.messaging.publisher import create_celery, send
from tests.journeys.conftest import assert_nothing_left_over
from tests.support.agents.rest_clients import Client
from tests.support.data.inventory import connect, query
from tests.support.processes.stack import Servers, Stack, wait_until

QUICKLY_SECONDS = 25.0
"""Six rounds of uploads that each waited for a mute broker would take thirty."""
WAITING_FOR_LOCK = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest.fixture(autouse=True)
def _restored(servers: Servers) -> Iterator[None]:
    """Restart Valkey for the next test."""
    yield
    if not servers.valkey.is_ready():
        servers.valkey.kill()
        servers.valkey.start()


def test_hundred_queued_uploads_are_placed_after_valkey_loses_its_data(
    stack: Stack, servers: Servers, agent: Client
) -> None:
    with ThreadPoolExecutor(8) as pool:
        uploads = [pool.submit(agent.upload, b"%d" % number, operation=uuid4()) for number in range(100)]
        wait_until(lambda: sum(at.done() for at in uploads) >= 30, "some are acknowledged")
        servers.valkey.kill()
        servers.valkey.start(discards_data=True)
    answers = [at.result() for at in uploads]
    assert {answer.status_code for answer in answers} == {201}
    assert all(state == "staged" for state in states(stack, [at.json()["versionId"] for at in answers]))
    with stack.running(stack.worker("files"), stack.worker("background"), stack.beat()):
        wait_until(lambda: set(states_of(answers, stack)) == {"live"}, "the schedule finds them")
        assert_nothing_left_over(stack)
    for number, answer in enumerate(answers):
        assert agent.download(answer.json()["id"]).content == b"%d" % number


def test_running_workers_continue_after_valkey_refused_writes(
    stack: Stack, servers: Servers, agent: Client
) -> None:
    workers = [stack.worker("files"), stack.worker("background")]
    with stack.running(*workers), redis.Redis.from_url(stack.redis_url) as valkey:
        valkey.config_set("min-replicas-to-write", 1)
        try:
            for worker in workers:
                wait_until(lambda worker=worker: worker.has_logged("NOREPLICAS"), "it was refused")  # type: ignore[misc]
        finally:
            valkey.config_set("min-replicas-to-write", 0)
        uploaded = agent.upload(b"after the refusals", operation=uuid4())
        wait_until(lambda: states_of([uploaded], stack) == ["live"], "it is placed")
        assert all(worker.is_running for worker in workers)


def test_running_workers_continue_after_valkey_was_killed_and_emptied(
    stack: Stack, servers: Servers, agent: Client
) -> None:
    workers = [stack.worker("files"), stack.worker("background")]
    with stack.running(*workers):
        for lose in (kill_and_forget, kill_and_remember, empty):
            lose(servers)
            uploaded = agent.upload(b"content", operation=uuid4())
            assert uploaded.status_code == 201
            assert_nothing_left_over(stack)
        assert all(worker.is_running for worker in workers)


def test_worker_survives_broker_restarts_during_its_jobs(
    stack: Stack, servers: Servers, agent: Client
) -> None:
    worker = stack.worker("files")
    with stack.running(worker), connect(stack) as connection, connection.cursor() as cursor:
        wait_until(lambda: worker.has_logged("ready."), "the worker is ready")
        for _ in range(3):
            cursor.execute("BEGIN; LOCK TABLE blobs IN EXCLUSIVE MODE")
            send_placements(stack, 4)
            wait_until(lambda: query(stack, WAITING_FOR_LOCK)[0][0] > 1, "jobs are in flight")
            servers.valkey.stop()
            servers.valkey.start()
            cursor.execute("COMMIT")
            file = agent.upload(b"content", operation=uuid4()).json()
            wait_until(partial(sent_and_live, stack, file["versionId"]), "work goes on")
        assert worker.is_running


def test_uploads_are_acknowledged_quickly_while_valkey_is_down(
    stack: Stack, servers: Servers, agent: Client
) -> None:
    servers.valkey.kill()
    answers = upload_quickly(agent)
    servers.valkey.start()
    with stack.running(stack.worker("files"), stack.worker("background")):
        assert_nothing_left_over(stack)
    assert set(states_of(answers, stack)) == {"live"}


def test_uploads_are_acknowledged_quickly_while_valkey_hangs(
    stack: Stack, servers: Servers, agent: Client
) -> None:
    with mute(servers):
        answers = upload_quickly(agent)
    with stack.running(stack.worker("files"), stack.worker("background")):
        assert_nothing_left_over(stack)
    assert set(states_of(answers, stack)) == {"live"}


def upload_quickly(agent: Client) -> list[requests.Response]:
    began = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: agent.upload(b"content", operation=uuid4()), range(24)))
    assert {answer.status_code for answer in answers} == {201}
    assert time.monotonic() - began < QUICKLY_SECONDS
    return answers


def states_of(answers: Sequence[requests.Response], stack: Stack) -> list[str]:
    return states(stack, [answer.json()["versionId"] for answer in answers])


def states(stack: Stack, versions: list[str]) -> list[str]:
    rows = query(stack, "SELECT state FROM blobs WHERE version_id::text = ANY(%s)", (versions,))
    assert len(rows) == len(versions)
    return [row[0] for row in rows]


def send_placements(stack: Stack, count: int) -> None:
    with contextlib.closing(create_celery(stack.redis_url)) as app:
        for _ in range(count):
            send(app, PlaceStaged())


def sent_and_live(stack: Stack, version: str) -> bool:
    send_placements(stack, 1)
    return states(stack, [version]) == ["live"]


def kill_and_forget(servers: Servers) -> None:
    servers.valkey.kill()
    servers.valkey.start(discards_data=True)


def kill_and_remember(servers: Servers) -> None:
    servers.valkey.kill()
    servers.valkey.start()


def empty(servers: Servers) -> None:
    with redis.Redis.from_url(servers.valkey.url) as client:
        client.flushall()


@contextmanager
def mute(servers: Servers) -> Iterator[None]:
    """Pause Valkey without closing its port: the kernel still accepts connections for it."""
    process = servers.valkey._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)
