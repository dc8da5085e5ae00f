"""Accepted calls on their way to a worker: a list in Valkey, and their requests beside it, each with a time to live.

They are not messages of Celery's: what kombu does for one message, from its event loop to the acknowledgement, took
twice the processor of all the rest of a call in the worker. Nothing is promised less. The row in Postgres says who may
make a call, so an entry may come twice; one that is lost ends as it would have, with a client that is told to try
again and a hold that is given back.

Prompts are never in Postgres, in the list or in a log; here they are taken out by the one worker that may make the
call, dropped when nobody waits for it, and forgotten after a while.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import redis

from shared.models.catalog import ModelEntry
from shared.models.dialects import Dialect, ParsedRequest, describe
from shared.models.travelling import read_entry, write_entry
from shared.replies import ReplyAddress, cancel
from shared.valkey import ask_together

KEY = "quartermaster:model-calls"
KEPT_SECONDS = 60
"""Longer than the lease of a hold, after which nobody may make the call."""
_ID_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedRequest:
    """A request whose credits are held; `created` in Unix seconds is what the reply will say of itself.

    `entry` is the model as the catalog had it when the credits were held.
    """

    entry: ModelEntry
    dialect: Dialect
    is_stream: bool
    created: int
    body: dict[str, Any]

    def parsed(self) -> ParsedRequest:
        """Tell the facts of the body again; the front has validated it."""
        return describe(self.dialect, self.body, is_stream=self.is_stream)


class CallQueue:
    """The calls that wait, as the front and the worker see them; every method but `is_full` is one round trip.

    All raise redis.RedisError.
    """

    def __init__(self, valkey: redis.Redis) -> None:
        """Suppose that there is room until the first call is put."""
        self._valkey = valkey
        self._waiting: int | None = 0

    def is_full(self, limit: int) -> bool:
        """Tell whether so many calls wait; asked of Valkey only if they did, or it failed, when one was last put."""
        waiting = self._waiting
        if waiting is None or waiting >= limit:
            self._waiting = waiting = self.count()
        return waiting >= limit

    def count(self) -> int:
        """Count the calls that wait."""
        waiting: Any = self._valkey.llen(KEY)
        return int(waiting)

    def put(self, address: ReplyAddress, request: AcceptedRequest) -> None:
        """Let a call wait for a worker."""
        values = {
            "entry": write_entry(request.entry),
            "dialect": request.dialect.value,
            "is_stream": request.is_stream,
            "created": request.created,
            "body": request.body,
        }
        content = json.dumps(values, separators=(",", ":"))
        try:
            _, self._waiting = ask_together(
                self._valkey,
                ("SET", _request_key(address.invocation_id), content, "EX", KEPT_SECONDS),
                ("RPUSH", KEY, address.invocation_id.bytes + address.channel.encode()),
            )
        except redis.RedisError:
            self._waiting = None
            raise

    def take(self, *, patience_seconds: float) -> ReplyAddress | None:
        """Take the call that has waited longest; None when none has come in time."""
        taken: Any = self._valkey.blpop([KEY], timeout=patience_seconds)
        if taken is None:
            return None
        entry: bytes = taken[1]
        return ReplyAddress(invocation_id=UUID(bytes=entry[:_ID_BYTES]), channel=entry[_ID_BYTES:].decode())

    def take_request(self, invocation_id: UUID) -> AcceptedRequest | None:
        """Take a call's request out; None when nobody waits for the call, or its time is over."""
        stored: Any = self._valkey.getdel(_request_key(invocation_id))
        if stored is None:
            return None
        values = json.loads(stored)
        return AcceptedRequest(
            **{**values, "entry": read_entry(values["entry"]), "dialect": Dialect(values["dialect"])}
        )

    def drop_request(self, invocation_id: UUID) -> None:
        """Forget the request of a call that no worker will make."""
        self._valkey.delete(_request_key(invocation_id))

    def withdraw(self, invocation_id: UUID) -> None:
        """Cancel a call, begun or not, because nobody waits for it any more."""
        self.drop_request(invocation_id)
        cancel(self._valkey, invocation_id)


def _request_key(invocation_id: UUID) -> str:
    return f"quartermaster:request:{invocation_id.hex}"
