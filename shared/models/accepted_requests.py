"""Hand an accepted request's body from the front to the worker: in Valkey, for as long as the call may wait.

Prompts are never in Postgres, in a job's message or in a log; here they have a time to live and are taken out by the
one worker that may make the call.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import redis

from shared.models.dialects import Dialect, ParsedRequest, describe

KEPT_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedRequest:
    """A request whose credits are held; `created` in Unix seconds is what the reply will say of itself."""

    dialect: Dialect
    is_stream: bool
    created: int
    body: dict[str, Any]

    def parsed(self) -> ParsedRequest:
        """Tell the facts of the body again; the front has validated it."""
        return describe(self.dialect, self.body, is_stream=self.is_stream)


def store(valkey: redis.Redis, invocation_id: UUID, request: AcceptedRequest) -> None:
    """Keep a request for its worker. Raises redis.RedisError."""
    values = {
        "dialect": request.dialect.value,
        "is_stream": request.is_stream,
        "created": request.created,
        "body": request.body,
    }
    valkey.set(_key(invocation_id), json.dumps(values, separators=(",", ":")), ex=KEPT_SECONDS)


def take(valkey: redis.Redis, invocation_id: UUID) -> AcceptedRequest | None:
    """Take a request out; None when its time is over or Valkey has forgotten it. Raises redis.RedisError."""
    stored: Any = valkey.getdel(_key(invocation_id))
    if stored is None:
        return None
    values = json.loads(stored)
    return AcceptedRequest(**{**values, "dialect": Dialect(values["dialect"])})


def drop(valkey: redis.Redis, invocation_id: UUID) -> None:
    """Forget a request that no worker will take. Raises redis.RedisError."""
    valkey.delete(_key(invocation_id))


def _key(invocation_id: UUID) -> str:
    return f"quartermaster:request:{invocation_id.hex}"
