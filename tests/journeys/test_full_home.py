"""Everything on one full disk, as under `make up`: no response is a 500, and everything works again with free space.

While the servers use their reserves, the service refuses only uploads. Once the reserves are used up, Postgres stops
rather than lose a commit. Its supervisor, which this test replaces, restarts it.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg2
import pytest
import redis
import requests

from tests.support.agents.rest_clients import Client, exchange_token
from tests.support.data.inventory import query
from tests.support.processes.stack import Servers, Stack, wait_until
from tests.support.servers.small_disks import CannotMount, SmallDisk, mounted_disk

ALLOWED = {429, 503, 507}
ROUNDS = 5


@dataclass(frozen=True, kw_only=True)
class Home:
    """An installation that shares one small disk with its servers."""

    stack: Stack
    disk: SmallDisk
    agent: Client
    owner: Client
    credentials: Any


@contextmanager
def living(directory: Path) -> Iterator[Home]:
    with mounted_disk(directory, size_bytes=768 << 20) as disk:
        servers = Servers(disk.path / "servers")
        servers.start()
        try:
            stack = Stack(disk.path / "home", servers, settings={"BLOB_STORE_RESERVE_BYTES": str(1 << 20)})
            credentials = stack.set_up()
            front = stack.web()
            workers = [stack.worker(name) for name in ("files", "background", "models")]
            with stack.running(front, *workers):
                yield Home(
                    stack=stack,
                    disk=disk,
                    agent=Client(front.url, exchange_token(front.url, credentials)),
                    owner=Client(front.url, credentials["ownerApiKey"]),
                    credentials=credentials,
                )
        finally:
            servers.stop()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    try:
        with living(tmp_path) as home:
            yield home
    except CannotMount as error:
        pytest.skip(str(error))


def test_service_survives_a_full_disk_without_a_restart(home: Home) -> None:
    file = home.agent.upload(b"stored before", operation=uuid4()).json()
    acts: dict[str, Callable[[], requests.Response]] = {
        "upload": lambda: home.agent.upload(b"x" * 5000, operation=uuid4()),
        "metadata": lambda: home.agent.read(file["id"]),
        "download": lambda: home.agent.download(file["id"]),
        "grant": lambda: home.agent.grant(file["id"], file["versionId"]),
        "call": lambda: call_model(home),
        "token": lambda: ask_for_token(home),
    }
    for name, act in acts.items():
        assert act().ok, name
    home.disk.fill()
    seen = repeat(acts)
    assert {status for (name, status) in seen if name == "upload"} == {507}
    assert {(name, status) for (name, status) in seen if name in ("metadata", "download", "token")} == {
        ("metadata", 200),
        ("download", 200),
        ("token", 200),
    }
    use_up_what_the_servers_hold(home)
    refused = {status for _, status in (*seen, *repeat(acts)) if status >= 400}
    assert refused <= ALLOWED
    home.disk.free()
    if not home.stack.servers.postgres.is_ready():
        home.stack.servers.postgres.kill()
        home.stack.servers.postgres.start()
    for name, act in acts.items():
        wait_until(lambda act=act: act().ok, f"{name} works again")  # type: ignore[misc]
    assert home.agent.download(file["id"]).content == b"stored before"


def repeat(acts: Mapping[str, Callable[[], requests.Response]]) -> set[tuple[str, int]]:
    """Run every action several times; return the names and response statuses."""
    return {(name, act().status_code) for _ in range(ROUNDS) for name, act in acts.items()}


def use_up_what_the_servers_hold(home: Home) -> None:
    """Write until Postgres and Valkey have used up their reserves."""
    with contextlib.suppress(psycopg2.Error):
        for _ in range(200):
            query(home.stack, "SELECT pg_logical_emit_message(false, 'filler', repeat('x', 1000000))")
    with redis.Redis.from_url(home.stack.redis_url) as valkey, contextlib.suppress(redis.RedisError):
        for number in range(40):
            valkey.set(f"filler-{number}", b"x" * 100_000, ex=60)
            time.sleep(0.05)  # The write-ahead log grows in between, and is refused in the end.


def call_model(home: Home) -> requests.Response:
    return requests.post(
        f"{home.owner.url}/v1/chat/completions",
        json={"model": "scripted/echo", "messages": [{"role": "user", "content": "Hello"}]},
        headers={"Authorization": f"Bearer {home.credentials['ownerApiKey']}"},
        timeout=60,
    )


def ask_for_token(home: Home) -> requests.Response:
    deployment = home.credentials["deployment"]
    return requests.post(
        f"{home.owner.url}/oauth/token",
        data={"grant_type": "client_credentials"},
        auth=(deployment["clientId"], deployment["clientSecret"]),
        timeout=60,
    )
