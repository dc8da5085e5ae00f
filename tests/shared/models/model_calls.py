"""Model calls accepted by a web process and run by a worker, here in one process, over real servers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import redis
from sqlalchemy import text

from shared.credits.balances import Balance, get_balance
from shared.credits.ledger import top_up
from shared.credits.reconciliation import reconcile
from shared.db.database import Database
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.callers import Caller
from shared.messaging.replies import Inbox, Reply, ReplyChannel, ReplyKind
from shared.messaging.valkey import connect_valkey
from shared.models.call_admission import CallAdmission
from shared.models.cancellations import Cancellations
from shared.models.catalog_file import CatalogFile
from shared.models.concurrency_limits import Shares
from shared.models.dialects import parse_chat, parse_responses
from shared.models.engine import Engine
from shared.models.execution import Executor, execute
from shared.models.heartbeats import Heartbeats, LeaseReader
from shared.models.invocations import Invoker, Limits, invoke
from shared.models.providers.routing import Router
from shared.models.queue.call_queue import CallQueue, find_cancelled
from shared.models.settlements import Settlements
from tests.support.data.identity import IdentityFactory, make_settings
from tests.support.models.call_messages import forget_calls

CREDITS = 1_000_000
LIMITS = Limits(queued_calls=1000, reserved_completion_tokens=4096)
CATALOG = """
[providers.scripted]
kind = "scripted"
[[models]]
id = "scripted/chat"
prompt_price = "1"
completion_price = "2"
retries = 0
upstreams = [{ provider = "scripted", model = "echo" }]
[[models]]
id = "scripted/responses"
prompt_price = "1"
completion_price = "2"
retries = 0
upstreams = [{ provider = "scripted", model = "echo", dialect = "responses" }]
[[models]]
id = "scripted/hasty"
prompt_price = "1"
completion_price = "2"
first_byte_timeout_seconds = 0.05
retries = 0
upstreams = [{ provider = "scripted", model = "echo" }]
[[models]]
id = "scripted/due"
prompt_price = "1"
completion_price = "2"
deadline_seconds = 0.5
retries = 0
upstreams = [{ provider = "scripted", model = "echo" }]
[[models]]
id = "scripted/narrow"
prompt_price = "1"
completion_price = "2"
concurrency_limit = 1
upstreams = [{ provider = "scripted", model = "echo" }]
[[models]]
id = "scripted/chat-only"
prompt_price = "1"
completion_price = "2"
supported_endpoints = ["chat.completions"]
upstreams = [{ provider = "scripted", model = "echo" }]
"""


@dataclass(frozen=True, kw_only=True)
class ModelCalls:
    """One organization's calls."""

    database: Database
    valkey: redis.Redis
    invoker: Invoker
    executor: Executor
    caller: Caller

    def chat(self, said: str, *, model: str = "scripted/chat", stream: bool = True, **fields: Any) -> Inbox:
        """Accept a chat completion."""
        messages = [{"role": "user", "content": said}]
        body = {"model": model, "messages": messages, "stream": stream, **fields}
        return invoke(self.invoker, self.executor.catalog.current(), self.caller, parse_chat(body))

    def respond(self, said: str, *, model: str = "scripted/chat", stream: bool = True) -> Inbox:
        """Accept a response."""
        body = {"model": model, "input": said, "stream": stream, "store": False}
        return invoke(self.invoker, self.executor.catalog.current(), self.caller, parse_responses(body))

    def execute(self, inbox: Inbox, executor: Executor | None = None) -> None:
        """Carry a call out to its end, as a worker does that gets its message."""
        execute(executor or self.executor, inbox.address)

    @contextmanager
    def executing(self, inbox: Inbox) -> Iterator[None]:
        """Execute a call in a thread within the block. The block must let the call end."""
        thread = threading.Thread(target=self.execute, args=(inbox,))
        thread.start()
        yield
        thread.join(60)
        assert not thread.is_alive()

    def record(self, inbox: Inbox) -> dict[str, Any] | None:
        """The call's usage record, if it was settled."""
        rows = self._rows("SELECT * FROM usage_records WHERE invocation_id = CAST(:id AS uuid)", inbox)
        return rows[0] if rows else None

    def charge(self, inbox: Inbox) -> tuple[str, int, int, bool]:
        """Status, tokens of prompt and completion, and whether they are estimated."""
        record = self.record(inbox)
        assert record is not None
        return (
            record["status"],
            record["prompt_tokens"],
            record["completion_tokens"],
            record["is_estimated"],
        )

    def state(self, inbox: Inbox) -> str:
        """The state of the call's invocation."""
        state: str = self._rows("SELECT state FROM invocations WHERE id = CAST(:id AS uuid)", inbox)[0][
            "state"
        ]
        return state

    def states(self) -> list[str]:
        """The states of the organization's invocations."""
        assert self.caller.payer_id is not None
        statement = text(
            "SELECT state FROM invocations WHERE organization_id = CAST(:id AS uuid) ORDER BY id"
        )
        with self.database.autocommit() as session:
            return list(session.execute(statement, {"id": str(self.caller.payer_id)}).scalars())

    @property
    def balance(self) -> Balance:
        """Return the organization's credits."""
        assert self.caller.payer_id is not None
        with self.database.autocommit() as session:
            return get_balance(session, self.caller.payer_id)

    def discrepancies(self) -> list[str]:
        """List the disagreements between calls, holds and the ledger."""
        with self.database.transaction() as session:
            return [found.kind for found in reconcile(session, self.caller.payer_id)]

    def with_limits(self, **limits: int) -> ModelCalls:
        """The same calls under other limits."""
        return replace(self, invoker=replace(self.invoker, limits=replace(LIMITS, **limits)))

    def _rows(self, statement: str, inbox: Inbox) -> list[dict[str, Any]]:
        with self.database.autocommit() as session:
            rows = session.execute(text(statement), {"id": str(inbox.address.invocation_id)})
            return [dict(row._mapping) for row in rows]


def received(inbox: Inbox) -> list[Reply]:
    """Return all replies of a call up to its last, without heartbeats: their number depends on the machine."""
    replies: list[Reply] = []
    while not replies or replies[-1].kind not in (ReplyKind.END, ReplyKind.FAILED, ReplyKind.LOST):
        reply = inbox.receive(10.0)
        assert reply is not None, replies
        if reply.kind is not ReplyKind.ALIVE:
            replies.append(reply)
    return replies


def data_of(replies: list[Reply]) -> str:
    """Return the data that a client would receive."""
    return b"".join(reply.data for reply in replies if reply.kind is not ReplyKind.FAILED).decode()


@contextmanager
def model_calls(
    database: Database, valkey_url: str, replies: ReplyChannel, directory: Path
) -> Iterator[ModelCalls]:
    """Assemble both halves around a new organization with credits."""
    factory = IdentityFactory(database, make_settings())
    organization_id = factory.organization().id
    give_credits(database, organization_id)
    catalog = directory / "models.toml"
    catalog.write_text(CATALOG)
    valkey = connect_valkey(valkey_url)
    engine = Engine(
        database=database,
        router=Router(),
        heartbeats=Heartbeats(database, partial(find_cancelled, valkey)),
        settlements=Settlements(database),
    )
    executor = Executor.over(valkey, engine=engine, catalog=CatalogFile(catalog, check_interval_seconds=0))
    shares = Shares(database, valkey, slots_when_unknown=LIMITS.queued_calls)
    queue = CallQueue(valkey)
    invoker = Invoker(
        database=database,
        queue=queue,
        replies=replies,
        limits=LIMITS,
        leases=LeaseReader(database),
        cancellations=Cancellations(queue),
        threads=ThreadPoolExecutor(4),
        admission=CallAdmission(database, shares, executor.slots, max_wait_seconds=5.0),
    )
    caller = factory.actor(factory.person(organization_id, bound=True)).caller
    try:
        yield ModelCalls(database=database, valkey=valkey, invoker=invoker, executor=executor, caller=caller)
    finally:
        invoker.leases.close()
        invoker.cancellations.close()
        invoker.threads.shutdown(cancel_futures=True)
        forget_calls(valkey)
        for inbox in list(replies._inboxes.values()):
            inbox.close()
        engine.settlements.close()
        engine.router.close()
        executor.slots.close()
        valkey.delete(*(f"model:{kind}:scripted/narrow" for kind in ("slots", "line", "asked")))


def give_credits(database: Database, organization_id: UUID) -> None:
    """Top an organization up."""
    with database.transaction() as session:
        top_up(
            session, organization_id=organization_id, amount=CREDITS, reference=str(uuid4()), actor=OPERATOR
        )
