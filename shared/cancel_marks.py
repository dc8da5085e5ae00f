"""Marks in Valkey that nobody waits for an invocation any more: a front sets one, the worker looks between chunks."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import redis

CANCEL_SECONDS = 900


def cancel(valkey: redis.Redis, invocation_id: UUID) -> None:
    """Tell the worker that nobody waits for this invocation any more. Raises redis.RedisError."""
    valkey.set(_cancel_key(invocation_id), b"1", ex=CANCEL_SECONDS)


def is_cancelled(valkey: redis.Redis, invocation_id: UUID) -> bool:
    """Tell whether an invocation was cancelled. Raises redis.RedisError."""
    return bool(valkey.exists(_cancel_key(invocation_id)))


def find_cancelled(valkey: redis.Redis, invocation_ids: Sequence[UUID]) -> set[UUID]:
    """Tell which of these invocations were cancelled, in one round trip. Raises redis.RedisError."""
    marks: Any = valkey.mget([_cancel_key(invocation_id) for invocation_id in invocation_ids])
    return {invocation_id for invocation_id, mark in zip(invocation_ids, marks, strict=True) if mark}


def _cancel_key(invocation_id: UUID) -> str:
    return f"quartermaster:cancelled:{invocation_id.hex}"
