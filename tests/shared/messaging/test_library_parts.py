"""The private parts of redis-py and kombu that the product uses have not changed.

If an upgrade breaks this, read the modules named here against the new code. The corrections of kombu have tests of
their own (`tests/workers/test_broker.py`).
"""

import importlib.metadata
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.connection

ROOT = Path(__file__).parents[3]
OF_REDIS = {
    "send_command": ["self", "args", "kwargs"],
    "pack_commands": ["self", "commands"],
    "send_packed_command": ["self", "command", "check_health"],
    "read_response": ["self", "disable_decoding", "timeout", "disconnect_on_error", "push_request"],
    "disconnect": ["self", "args", "kwargs"],
}
"""Methods of a connection that `replies.py` and `valkey.py` call, with their parameters."""


@pytest.mark.parametrize("library", ["kombu", "redis"])
def test_the_version_that_was_read_is_pinned(library: str) -> None:
    pinned = re.search(rf'"{library}==([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert pinned is not None
    assert importlib.metadata.version(library) == pinned[1]
    for path in (ROOT / "deploy").glob("requirements*.txt"):
        assert f"\n{library}=={pinned[1]} " in path.read_text()


@pytest.mark.parametrize("name", OF_REDIS)
def test_a_connection_to_valkey_has_the_methods_it_had(name: str) -> None:
    method: Any = getattr(redis.connection.AbstractConnection, name)
    assert list(inspect.signature(method).parameters) == OF_REDIS[name]


def test_a_pool_makes_connections_as_a_reader_of_replies_does() -> None:
    pool: Any = redis.BlockingConnectionPool.from_url("redis://127.0.0.1:1/0", socket_timeout=1)
    connection = pool.connection_class(**pool.connection_kwargs | {"socket_timeout": 2})
    assert isinstance(connection, redis.connection.AbstractConnection)
    assert connection.socket_timeout == 2
    assert list(inspect.signature(pool.release).parameters) == ["connection"]
    assert not [
        at
        for at in inspect.signature(pool.get_connection).parameters.values()
        if at.default is at.empty and at.kind is at.POSITIONAL_OR_KEYWORD
    ]
