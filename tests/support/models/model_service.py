"""A running service that sells models, its fake upstream, and the reconciliation of all accounts.

Two kinds of models exist: `scripted/…` follow directives in the prompt and need no upstream; `fake/…` use the test's
`FakeUpstream`, whose own count of generated tokens is compared with the charges.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from pydantic import SecretStr

from shared.credits.ledger import top_up
from shared.credits.reconciliation import reconcile
from shared.credits.sweeps import mark_unresolved, release_overdue_holds, settle_unresolved
from shared.credits.usage.rollups import roll_up_usage
from shared.db.database import Database
from shared.identity.access.authorization import OPERATOR
from tests.support.data.identity import IdentityFactory, make_settings
from tests.support.data.inventory import query
from tests.support.models.catalog_text import FAKE, FAKE_RESPONSES, model_text
from tests.support.models.upstreams import FakeUpstream, Served
from tests.support.processes.stack import Servers, Service, Stack, wait_until

_SCRIPTED = 'provider = "scripted", model = "echo"'
CATALOG = (
    '[providers.scripted]\nkind = "scripted"\n[providers.fake]\nbase_url = "ADDRESS"\n'
    + model_text("scripted/echo", _SCRIPTED)
    + model_text("scripted/echo-responses", f'{_SCRIPTED}, dialect = "responses"')
    + model_text("scripted/hasty", _SCRIPTED, first_byte_timeout_seconds=0.2, deadline_seconds=0.6, retries=0)
    + model_text("scripted/dear", _SCRIPTED, prompt="1000000", completion="1000000")
    + model_text("scripted/chat-only", _SCRIPTED, supported_endpoints=["chat.completions"])
    + model_text("scripted/pictures", _SCRIPTED, output_modalities=["image"])
    + model_text("fake/chat", FAKE, retries=0)
    + model_text("fake/responses", FAKE_RESPONSES, retries=0)
    + model_text("fake/narrow", FAKE, retries=0, concurrency_limit=2)
)
RECORDED = (
    *("invocation_id", "model", "provider", "status", "prompt_tokens", "completion_tokens", "cost"),
    *(
        "is_estimated",
        "user_id",
        "identity_id",
        "principal_id",
        "deployment_id",
        "api_key_id",
        "distribution_id",
    ),
)
IMPATIENT_FRONT = "tests.support.processes.short_timeouts:application"


def use_impatient_front(command: Sequence[str]) -> Sequence[str]:
    """Return a process's command, changed so that a web process uses short timeouts; other processes are unchanged."""
    return [IMPATIENT_FRONT if part == "web.wsgi:application" else part for part in command]


@dataclass(frozen=True, kw_only=True)
class ModelService:
    """A stack that is set up to sell models, and its users."""

    stack: Stack
    upstream: FakeUpstream
    front: Service
    credentials: dict[str, Any]
    database: Database
    identity: IdentityFactory

    @property
    def api_key(self) -> str:
        """Return the owner's API key."""
        key: str = self.credentials["ownerApiKey"]
        return key

    @property
    def organization_id(self) -> UUID:
        """Return the id of the first organization, which has credits."""
        return UUID(self.credentials["organizationId"])

    def give_credits(self, organization_id: UUID, amount: int) -> None:
        """Add micro-credits to an organization."""
        with self.database.transaction() as session:
            top_up(
                session,
                organization_id=organization_id,
                amount=amount,
                reference=str(uuid4()),
                actor=OPERATOR,
            )

    def records(self, where: str = "true", *parameters: object) -> list[dict[str, Any]]:
        """Return the usage records, oldest first."""
        statement = f"SELECT {', '.join(RECORDED)} FROM usage_records WHERE {where} ORDER BY invocation_id"
        return [dict(zip(RECORDED, row, strict=True)) for row in query(self.stack, statement, parameters)]

    def wait_for_record(self, invocation_id: str | UUID) -> dict[str, Any]:
        """Wait until a call is settled, and return its usage record."""
        found: list[dict[str, Any]] = []

        def is_there() -> bool:
            found[:] = self.records("invocation_id = %s", str(invocation_id))
            return bool(found)

        wait_until(is_there, "the call is settled")
        return found[0]

    def invocations(self) -> dict[str, str]:
        """Return the state of each invocation."""
        return dict(query(self.stack, "SELECT id::text, state FROM invocations ORDER BY id"))

    def open_invocations(self) -> list[str]:
        """Return the invocations whose hold is open."""
        states = ("held", "dispatched", "unresolved")
        return [found for found, state in self.invocations().items() if state in states]

    def wait_until_settled(self, *, seconds: float = 30.0) -> None:
        """Wait until no hold is open."""
        wait_until(lambda: not self.open_invocations(), "every call is settled", seconds=seconds)

    def sweep(self) -> None:
        """Expire all leases and grace periods, and run the sweeps."""
        query(
            self.stack,
            "UPDATE invocations SET lease_until = now() - interval '1 second'"
            " WHERE state IN ('held', 'dispatched', 'unresolved')",
        )
        release_overdue_holds(self.database)
        mark_unresolved(self.database)
        settle_unresolved(self.database, grace=timedelta(0))

    def disagreements(self) -> list[str]:
        """Return every disagreement among ledger, balances, usage records and the upstream's own count."""
        roll_up_usage(self.database)
        with self.database.transaction() as session:
            found = [f"{at.kind} {at.reference}: {at.found}, not {at.expected}" for at in reconcile(session)]
        found += [f"still open: {invocation}" for invocation in self.open_invocations()]
        return found + self._against_the_upstream()

    def _against_the_upstream(self) -> list[str]:
        calls = [line.call for line in self.upstream.served]
        found = [f"called twice: {call}" for call in set(calls) if calls.count(call) > 1]
        records = {str(record["invocation_id"]): record for record in self.records("model LIKE 'fake/%%'")}
        for line in self.upstream.served:
            record = records.pop(str(line.call), None)
            if record is None:
                found.append(f"uncharged: {line}")
            elif not _is_fair(record, line):
                found.append(f"charged wrongly: {record} for {line}")
        # The upstream never received the remaining records' calls: at most a dead worker's estimate was charged.
        found += [f"charged for nothing: {at}" for at in records.values() if at["cost"] and not _is_guess(at)]
        return found


def _is_fair(record: dict[str, Any], line: Served) -> bool:
    """Return whether a record states the reported usage, or estimates at most the text sent (chunks of four bytes).

    An interrupted call may cost nothing if its worker had received nothing from the upstream.
    """
    told = (record["prompt_tokens"], record["completion_tokens"])
    if told == (0, 0):
        broke_off = record["status"] != "completed" and line.ended != "answered"
        return broke_off or _is_guess(record) or not line.prompt_tokens
    if not record["is_estimated"]:
        return told == (line.prompt_tokens, line.completion_tokens)
    return bool(record["completion_tokens"] <= line.completion_tokens and record["prompt_tokens"] > 0)


def _is_guess(record: dict[str, Any]) -> bool:
    return bool(record["is_estimated"] and record["status"] == "failed" and record["provider"] is None)


@contextlib.contextmanager
def model_service(stack: Stack, upstream: FakeUpstream, **front_settings: str) -> Iterator[ModelService]:
    """Set a stack up and run its web process; the test runs the workers."""
    catalog = stack.directory / "models.toml"
    catalog.write_text(CATALOG.replace("ADDRESS", upstream.base_url))
    stack.environment["MODELS_CONFIG"] = str(catalog)
    credentials = stack.set_up()
    loaded = make_settings(
        database_url=stack.database_url,
        base_url=stack.environment["BASE_URL"],
        encryption_keys=(SecretStr(stack.environment["ENCRYPTION_KEYS"]),),
    )
    database = Database(loaded.database_url)
    front = stack.web(port=None, **front_settings)
    try:
        with stack.running(front):
            yield ModelService(
                stack=stack,
                upstream=upstream,
                front=front,
                credentials=credentials,
                database=database,
                identity=IdentityFactory(database, loaded),
            )
    finally:
        stack.kill_all()
        database.dispose()


@contextlib.contextmanager
def running_model_service(
    directory: Path, *workers: str, has_beat: bool = False, **front_settings: str
) -> Iterator[ModelService]:
    """Run a separate installation below a directory: servers, a web process, these workers, and beat if requested."""
    servers = Servers(directory / "servers")
    servers.start()
    try:
        stack = Stack(directory / "stack", servers)
        others = [*map(stack.worker, workers), *([stack.beat()] if has_beat else [])]
        with (
            FakeUpstream() as upstream,
            model_service(stack, upstream, **front_settings) as running,
            stack.running(*others),
        ):
            yield running
    finally:
        servers.stop()
