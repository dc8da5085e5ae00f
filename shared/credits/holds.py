"""Holds: reserve credits for a call, dispatch the call to one worker, renew its lease, and list open holds.

An invocation is `held` when the web process has accepted it, and `dispatched` when one worker may call the
provider. From these two states the sweeps know which calls may have consumed tokens.

Call these functions on `database.autocommit()` unless other changes must commit with them. On such a session each
function is one transaction and one round trip. It then locks the row of the balance, which all calls of an
organization update, only briefly.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Unpack
from uuid import UUID, uuid4

from sqlalchemy import Row, select

from shared.credits.authorization import authorize_administrative_reading
from shared.credits.errors import (
    CreditPolicySuspended,
    InsufficientCredits,
    InvocationConflict,
    ModelNotAllowed,
    over_budget,
)
from shared.credits.prices import Prices
from shared.credits.sql_functions import call
from shared.credits.tables import invocations
from shared.db.database import Session
from shared.db.schema import columns_of
from shared.identity.access.authorization import Actor
from shared.identity.access.callers import Caller, ExecutorKind
from shared.identity.access.permissions import Permission
from shared.pagination import Page, Position, descending, paginate

QUEUE_LEASE_SECONDS = 45
"""How long an accepted call may wait for a worker. After that its hold is released and it cannot be dispatched."""
# This lease expires only if the web process died right after the hold. A running web process voids a call that no
# worker has taken after 30 s, and notices this up to 9 s later (`reply_timeouts.py`). A shorter lease would end
# calls that a worker is about to take. Renewing a shorter lease was rejected: each waiting call would then cost a
# write when load is highest.
DISPATCH_LEASE_SECONDS = 20
"""How long a dispatched call may run without a renewal; its worker renews every few seconds.

Long enough for a restart of Postgres. Settlement by estimate waits as long again (`sweeps.GRACE`), because a worker
that reconnects knows the exact cost.
"""
_DISPATCH_LEASE = timedelta(seconds=DISPATCH_LEASE_SECONDS)


class AtShare(Exception):
    """The organization has as many open calls as its share allows, so nothing was held."""

    def __init__(self, *, open_calls: int) -> None:
        super().__init__(open_calls)
        self.open_calls = open_calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The subjects by which usage reports group a call: executor, principal, deployment, key and distribution.

    `api_key_id` is None for calls with an access token or from the console. `distribution_id` is None for calls that
    were not routed by a distribution.
    """

    user_id: UUID | None = None
    identity_id: UUID | None = None
    principal_id: UUID | None = None
    deployment_id: UUID | None = None
    api_key_id: UUID | None = None
    distribution_id: UUID | None = None

    @classmethod
    def of(cls, caller: Caller) -> Attribution:
        """Return the attribution of a caller."""
        executor, owner = caller.executor, caller.owner
        # `principal_id` is the receiving identity only: if the executor owns the files, `identity_id` already names
        # it.
        is_received = owner is not None and owner.id != executor.id
        is_user = executor.kind is ExecutorKind.USER
        return cls(
            user_id=executor.id if is_user else None,
            identity_id=executor.id if executor.kind is ExecutorKind.DAEMON_IDENTITY else None,
            principal_id=owner.id if is_received and owner is not None else None,
            deployment_id=caller.deployment_id,
            api_key_id=caller.api_key_id,
            distribution_id=caller.distribution_id,
        )


def principal_of(row: Row[Any]) -> UUID | None:
    """Return the principal of a call's row: the receiving identity if set, else the daemon if set, else the user."""
    principal_id: UUID | None = row.principal_id or row.identity_id or row.user_id
    return principal_id


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInvocation:
    """A call to be accepted.

    `hold` is the highest expected cost in µcr. `estimated_prompt_tokens` are charged if the worker dies after it
    delivered a part of the reply. A second hold with the same id counts as a repetition if its `request_hash` is
    equal, and otherwise as a conflict. `provider` is the first provider to be called; open calls are counted under
    this provider. `held_tokens` (prompt and completion) count toward token limits until the actual number is known.
    """

    id: UUID
    organization_id: UUID
    model: str
    hold: int
    prices: Prices
    estimated_prompt_tokens: int
    attribution: Attribution
    request_hash: bytes | None = None
    provider: str | None = None
    held_tokens: int = 0
    lease_seconds: float = QUEUE_LEASE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """The right to call the provider once, with the token that settles the call."""

    invocation_id: UUID
    organization_id: UUID
    token: UUID
    model: str
    hold: int
    prices: Prices


def hold(session: Session, *, invocation: NewInvocation, share: int | None = None) -> None:
    """Reserve an invocation's credits. A second hold with the same id changes nothing.

    Raises InsufficientCredits, CreditPolicySuspended, InvocationConflict, BudgetExceeded, RateLimitExceeded,
    ModelNotAllowed, and AtShare for an organization with `share` open calls.
    """
    attribution = invocation.attribution
    row = call(
        session,
        "credits_hold",
        id=invocation.id,
        organization_id=invocation.organization_id,
        hold=invocation.hold,
        lease=timedelta(seconds=invocation.lease_seconds),
        model=invocation.model,
        **invocation.prices.columns(),
        estimated_prompt_tokens=invocation.estimated_prompt_tokens,
        request_hash=invocation.request_hash,
        user_id=attribution.user_id,
        identity_id=attribution.identity_id,
        principal_id=attribution.principal_id,
        deployment_id=attribution.deployment_id,
        api_key_id=attribution.api_key_id,
        distribution_id=attribution.distribution_id,
        share=share,
        provider=invocation.provider,
        held_tokens=invocation.held_tokens,
    )
    match row:
        case ("at_share", _, open_calls):
            raise AtShare(open_calls=open_calls)
        case ("suspended", _, _):
            raise CreditPolicySuspended
        case ("insufficient", available, held):
            raise InsufficientCredits(available=available, held=held, required=invocation.hold)
        case ("conflict", _, _):
            raise InvocationConflict
        case ("model_denied", _, _):
            raise ModelNotAllowed
        # Any other result than those above contains the figures of the refusing budget as JSON.
        case (result, _, _) if result != "held":
            raise over_budget(json.loads(result))


def dispatch(session: Session, invocation_id: UUID, *, token: UUID | None = None) -> Dispatch | None:
    """Acquire the right to call the provider. Return None if another worker has it or the call has ended.

    If the result is None, do not call the provider. If the result was lost, call this function again with the same
    `token`.
    """
    token = token or uuid4()
    row = call(session, "credits_dispatch", id=invocation_id, token=token, lease=_DISPATCH_LEASE)
    if row is None:
        return None
    return Dispatch(
        invocation_id=invocation_id,
        organization_id=row.organization_id,
        token=token,
        model=row.model,
        hold=row.hold,
        prices=Prices.of(row),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a dispatched call, in streamed tokens."""

    invocation_id: UUID
    token: UUID
    streamed_tokens: int


def renew(session: Session, calls: Sequence[Progress]) -> int:
    """Renew the leases of a process's calls and store their streamed tokens. Return how many were renewed.

    Calls that were not renewed have ended, or another transaction is settling them.
    """
    row = call(
        session,
        "credits_renew",
        ids=[str(at.invocation_id) for at in calls],
        tokens=[str(at.token) for at in calls],
        streamed_tokens=[at.streamed_tokens for at in calls],
        lease=_DISPATCH_LEASE,
    )
    return int(row[0]) if row is not None else 0


class Stage(StrEnum):
    """The stage of a call, by the state of its invocation."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The stage and organization of a call, and the seconds until its lease ends; negative after it has ended."""

    stage: Stage
    remaining_seconds: float
    organization_id: UUID | None = None
    provider: str | None = None


def read_leases(session: Session, invocation_ids: Sequence[UUID]) -> dict[UUID, Lease]:
    """Return the lease of each of these calls; a call that does not exist has ended."""
    row = session.fetch_one(_LEASES, {"ids": [str(at) for at in invocation_ids]})
    found = {UUID(at): _lease(*lease) for at, *lease in (row[0] if row and row[0] else ())}
    ended = Lease(stage=Stage.ENDED, remaining_seconds=0.0)
    return {at: found.get(at, ended) for at in invocation_ids}


def _lease(state: str, seconds: float, organization_id: str, provider: str | None) -> Lease:
    return Lease(
        stage=_STAGES.get(state, Stage.ENDED),
        remaining_seconds=float(seconds),
        organization_id=UUID(organization_id),
        provider=provider,
    )


_STAGES = {"held": Stage.WAITING, "dispatched": Stage.RUNNING, "unresolved": Stage.RUNNING}
_LEASES = """
SELECT jsonb_agg(jsonb_build_array(
    id, state, extract(epoch FROM lease_until - clock_timestamp()), organization_id, provider
))
FROM invocations WHERE id = ANY(%(ids)s::uuid[])
"""


def ensure_voided(session: Session, invocation_id: UUID) -> bool:
    """Void an invocation unless it was dispatched. Return False if a provider may have been called.

    The function can be repeated: it also returns True if the invocation was already voided or has expired.
    """
    return void(session, invocation_id) or session.fetch_one(_UNASKED, {"id": str(invocation_id)}) is not None


_UNASKED = "SELECT 1 FROM invocations WHERE id = %(id)s::uuid AND state IN ('voided', 'expired')"


def void(session: Session, invocation_id: UUID) -> bool:
    """Release the hold of an invocation that was not dispatched. Return False if it was dispatched or has ended."""
    row = call(session, "credits_void", id=invocation_id)
    return row is not None and bool(row[0])


class HoldState(StrEnum):
    """The state of an open call. An `unresolved` call has lost its worker and will be settled by estimate."""

    HELD = "held"
    DISPATCHED = "dispatched"
    UNRESOLVED = "unresolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenHold(Attribution):
    """The credits that an open call reserves, in µcr, with the call's attribution."""

    id: UUID
    organization_id: UUID
    state: HoldState
    hold: int
    model: str
    provider: str | None
    created_at: datetime
    lease_until: datetime


def list_holds(
    session: Session, *, actor: Actor, organization_id: UUID, **page: Unpack[Position]
) -> Page[OpenHold]:
    """Return a page of an organization's open holds, newest first. Raises PermissionDenied, ResourceNotFound."""
    authorize_administrative_reading(session, actor, Permission.CREDIT_READ, organization_id)
    statement = select(*columns_of(OpenHold, invocations)).where(
        invocations.c.organization_id == organization_id,
        invocations.c.state.in_([state.value for state in HoldState]),
    )
    # Order by time and not by id: ids of agents' calls are derived from their turns and do not follow time.
    return paginate(session, statement, descending(invocations.c.created_at, invocations.c.id), _hold, **page)


def _hold(row: Row[Any]) -> OpenHold:
    values = {**row._asdict(), "state": HoldState(row.state), "principal_id": principal_of(row)}
    return OpenHold(**values)
