"""Prompts and replies are stored nowhere: no table, log, metric, blob or file, and in Valkey only briefly."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import redis
import requests

from shared.credits.usage.rollups import roll_up_usage
from tests.journeys.models.asking import ask, listening, scripted, waiting
from tests.journeys.models.conftest import running_worker
from tests.support.data.inventory import query
from tests.support.models.model_service import ModelService
from tests.support.processes.stack import Servers, free_port, wait_until

KEPT_SECONDS = 300
GONE = -2
"""What Valkey tells of the lifetime of a key that it does not have."""
ANSWERED = 'quartermaster_provider_requests_total{outcome="answered"'


@pytest.fixture
def canary() -> str:
    return f"canary{uuid4().hex}"


def test_prompts_and_replies_are_stored_nowhere(
    service: ModelService, servers: Servers, valkey: redis.Redis, canary: str
) -> None:
    metrics = service.stack.directory / "metrics"
    shared = {"METRICS_DIRECTORY": str(metrics)}
    front = service.stack.web(port=free_port(), **shared)
    with service.stack.running(front), running_worker(service, **shared) as worker:
        call_in_every_way(service, canary)
        service.wait_until_settled()
        service.database.dispose()
        roll_up_usage(service.database)
        wait_until(lambda: not list(keys_holding(valkey, canary)), "Valkey has forgotten", seconds=15)
        wait_until(lambda: ANSWERED in numbers(front.url), "the worker's numbers are among the front's")
        counted = numbers(front.url)
        with waiting(service, f"!wait 60000 {canary}", stream=True):
            worker.kill()
    assert canary not in counted
    assert [table for table in tables(service) if holds(service, table, canary)] == []
    query(service.stack, "CHECKPOINT")
    kept = contents(service.stack.directory, servers.directory)
    assert {".log", ".json", ".aof"} <= {path.suffix for path in kept}
    assert [path for path, content in kept.items() if canary.encode() in content] == []
    service.sweep()


def test_queued_prompt_has_a_short_time_to_live(
    service: ModelService, valkey: redis.Redis, canary: str
) -> None:
    with waiting(service, canary, stream=False):
        found: dict[bytes, int] = {}
        # Read once: on a busy machine the call may be returned before a second read.
        wait_until(lambda: found or found.update(lifetimes(valkey, canary)), "the prompt waits")
        ((key, left_seconds),) = found.items()
        assert key.startswith(b"quartermaster:request:")
        assert 0 < left_seconds <= KEPT_SECONDS
        service.wait_until_settled()
    assert not list(keys_holding(valkey, canary))


def numbers(url: str) -> str:
    return requests.get(f"{url}/metrics", timeout=60).text


def call_in_every_way(service: ModelService, canary: str) -> None:
    """Send the canary in prompts and replies of calls that succeed, break, fail, are refused, and are abandoned."""
    for model in ("scripted/echo", "scripted/echo-responses"):
        for text in (
            canary,
            f"!break after 1\n!say a {canary} b",
            f"!fail 500\n{canary}",
            f"!fail 400\n{canary}",
        ):
            ask(service, text, model=model)
        with listening(service, f"!say {canary} and so on", model=model) as stream:
            assert canary in "".join(stream.read_to_end())
    body = f'{{"error": {{"message": "what is {canary}?", "param": "{canary}", "code": "{canary}"}}}}'
    assert canary in ask(service, scripted(status=400, body=body)).text
    assert ask(service, scripted(status=500, body=body)).status_code == 502
    assert canary not in ask(service, scripted(status=401, body=body)).text
    assert (
        ask(service, scripted(prompt_tokens=0, raw=f"HTTP/1.1 200 {canary}\r\n\r\n{canary}")).status_code
        == 502
    )
    assert ask(service, canary, model=canary).status_code == 404
    with listening(service, f"!tokens 1000\n!delay 20\n!think {canary}", model="scripted/echo") as stream:
        stream.read_until("word3")


def keys_holding(valkey: redis.Redis, canary: str) -> Iterator[bytes]:
    """Yield the keys whose value, of any type, contains the canary."""
    for key in valkey.scan_iter():
        with contextlib.suppress(redis.ResponseError):
            if canary.encode() in repr(value_of(valkey, key)).encode():
                yield key


def lifetimes(valkey: redis.Redis, canary: str) -> dict[bytes, int]:
    """Return the remaining seconds of each key that contains the canary, without the keys that have gone meanwhile."""
    left = {key: int(str(valkey.ttl(key))) for key in keys_holding(valkey, canary)}
    return {key: seconds for key, seconds in left.items() if seconds != GONE}


def value_of(valkey: redis.Redis, key: bytes) -> object:
    """Return the whole value of a key."""
    reads = {
        b"string": lambda: valkey.get(key),
        b"list": lambda: valkey.lrange(key, 0, -1),
        b"hash": lambda: valkey.hgetall(key),
        b"set": lambda: valkey.smembers(key),
        b"zset": lambda: valkey.zrange(key, 0, -1),
        b"stream": lambda: valkey.xrange(key),
        b"none": lambda: None,
    }
    return reads[valkey.type(key)]()  # type: ignore[index,no-untyped-call]


def contents(*directories: Path) -> dict[Path, bytes]:
    """Return every file below: logs, metrics, blobs, and the data of Postgres and Valkey."""
    found = {}
    for path in (path for directory in directories for path in directory.rglob("*")):
        with contextlib.suppress(OSError):  # It is a socket, or was removed meanwhile.
            if path.is_file():
                found[path] = path.read_bytes()
    return found


def tables(service: ModelService) -> list[str]:
    statement = "SELECT tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
    found = [row[0] for row in query(service.stack, statement)]
    assert "usage_records" in found
    return found


def holds(service: ModelService, table: str, canary: str) -> bool:
    """Return whether any row contains the canary, as text or as hexadecimal digits of bytes."""
    statement = f"SELECT count(*) FROM {table} t WHERE t::text ILIKE %s OR t::text ILIKE %s"
    patterns = (f"%{canary}%", f"%{canary.encode().hex()}%")
    return bool(query(service.stack, statement, patterns)[0][0])
