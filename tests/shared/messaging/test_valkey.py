"""Pipelined commands to Valkey each get their own result."""

from collections.abc import Iterator

import pytest
import redis

from deploy.embedded.valkey import EmbeddedValkey
from shared.messaging.valkey import ask_together, connect_valkey


@pytest.fixture
def valkey(valkey_server: EmbeddedValkey) -> Iterator[redis.Redis]:
    """Return a client with one connection, so that a use meets the leftovers of the previous one."""
    with connect_valkey(valkey_server.url, max_connections=1) as client:
        yield client


def test_commands_asked_together_are_answered_in_their_order(valkey: redis.Redis) -> None:
    answers = ask_together(
        valkey,
        ("SET", "word", "kept", "EX", 5),
        ("GET", "word"),
        ("RPUSH", "line", b"\x00\xff"),
        ("DEL", "line"),
    )
    assert answers == [b"OK", b"kept", 1, 1]


def test_a_command_that_fails_leaves_no_answer_to_the_next(valkey: redis.Redis) -> None:
    with pytest.raises(redis.ResponseError):
        ask_together(valkey, ("SET", "word", "text"), ("RPUSH", "word", "x"), ("GET", "word"))
    assert valkey.get("word") == b"text"
    assert ask_together(valkey, ("DEL", "word")) == [1]
