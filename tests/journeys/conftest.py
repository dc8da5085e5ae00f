"""One installation for all journeys: its servers and first web process run throughout; a journey starts the rest.

A journey that kills a shared process restarts it before it ends.
"""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.agents.rest_clients import Client, exchange_token
from tests.support.data.inventory import find_faults, request_sweeps, settle
from tests.support.processes.stack import Servers, Service, Stack


@pytest.fixture(scope="package")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Run a durable Postgres and a Valkey until the last journey has ended."""
    servers = Servers(tmp_path_factory.mktemp("servers"))
    servers.start()
    yield servers
    servers.stop()


@dataclass(frozen=True, kw_only=True)
class Installation:
    """A stack that is set up, its permanent web process, and its callers."""

    stack: Stack
    front: Service
    credentials: dict[str, Any]
    agent: Client
    owner: Client


@pytest.fixture(scope="package")
def installation(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Set up an installation, and run one web process."""
    # The agent's one token must outlive a run on a busy machine.
    stack = Stack(tmp_path_factory.mktemp("journeys"), servers, settings={"ACCESS_TOKEN_SECONDS": "86400"})
    credentials = stack.set_up()
    front = stack.web()
    with stack.running(front):
        yield Installation(
            stack=stack,
            front=front,
            credentials=credentials,
            agent=Client(front.url, exchange_token(front.url, credentials)),
            owner=Client(front.url, credentials["ownerApiKey"]),
        )
    stack.kill_all()


@pytest.fixture(scope="package")
def stack(installation: Installation) -> Stack:
    return installation.stack


@pytest.fixture(scope="package")
def agent(installation: Installation) -> Client:
    """Return the deployment's agent."""
    return installation.agent


@pytest.fixture(scope="package")
def owner(installation: Installation) -> Client:
    """Return the organization's owner."""
    return installation.owner


@pytest.fixture(scope="module")
def workers(stack: Stack) -> Iterator[None]:
    """Run both workers for a module."""
    with stack.running(stack.worker("files"), stack.worker("background")):
        yield


def assert_nothing_left_over(stack: Stack) -> None:
    """Finish all background work, then compare rows and bytes."""
    settle(stack)
    if find_faults(stack):
        # A sweep may have claimed bytes by a row while another removed them; that row is deleted soon.
        settle(stack)
    assert find_faults(stack) == []


def run_until_dead(stack: Stack, name: str, point: str) -> None:
    """Run a worker that is armed for this fault point until it has died there."""
    worker = stack.worker(name, FAULTS=point)
    with stack.running(worker):
        request_sweeps(stack)
        assert worker.wait_for_end() == -signal.SIGKILL
