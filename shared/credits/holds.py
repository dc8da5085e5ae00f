"""Holds: reserve credits for a call, and hand out the one right to make it.

An invocation is `held` once the front accepts it, and `dispatched` once exactly one worker may call the provider, so
a sweep can tell what may have been consumed.

Call these on `database.autocommit()` unless something else must commit with them: each is then one transaction and
one round trip, and the hot row of the balance is locked only as long as the commit takes.
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
"""How long an accepted call may wait for a worker; afterwards its hold is released and nobody may dispatch it.

Only the hold of a front that died right after it lasts so long, because a front that lives sends a lost message again,
and gives a call back that no worker takes: after 30 s, which it notices up to 9 s later (`reply_timeouts.py`). A lease
that ended before would end calls that a worker is about to take. Nor do fronts renew a shorter one: that is a write
every few seconds for each call that waits, just when more calls come than are worked off.
"""
DISPATCH_LEASE_SECONDS = 20
"""How long a dispatched call may go without a word from its worker, who renews it every few seconds.

A restart of Postgres fits into it, after which the worker goes on; settling by estimate waits as long again, for the
worker that comes back later knows what the call has cost (`sweeps.GRACE`).
"""
_DISPATCH_LEASE = timedelta(seconds=DISPATCH_LEASE_SECONDS)


class AtShare(Exception):
    """The organization has as many open calls as its share allows; nothing was held."""

    def __init__(self, *, open_calls: int) -> None:
        super().__init__(open_calls)
        self.open_calls = open_calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Who is responsible for a call: the user or the daemon whose permissions it ran with, and for whom.

    `api_key_id` is None for calls with an access token or by the console, `distribution_id` for those that no
    distribution routed.
    """

    user_id: UUID | None = None
    identity_id: UUID | None = None
    principal_id: UUID | None = None
    deployment_id: UUID | None = None
    api_key_id: UUID | None = None
    distribution_id: UUID | None = None

    @classmethod
    def of(cls, caller: Caller) -> Attribution:
        """Read it off a caller."""
        executor, owner = caller.executor, caller.owner
        # The receiving identity may be another agent's daemon. Its own stands in `identity_id`.
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
    """Give the principal of a row of a call: the receiving identity, else the daemon, else the user."""
    principal_id: UUID | None = row.principal_id or row.identity_id or row.user_id
    return principal_id


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInvocation:
    """A call about to be accepted.

    `hold` is the most it is expected to cost, in µcr. The prompt's estimated tokens are charged if the worker dies
    after a part of the reply. A second hold under the same id is the same call if `request_hash` agrees, else a
    conflict. `provider` is asked first; calls are counted by it. `held_tokens`, prompt and completion, is what limits
    of tokens count until it is known.
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
    """The right to call the provider once, and the token that settles it."""

    invocation_id: UUID
    organization_id: UUID
    token: UUID
    model: str
    hold: int
    prices: Prices


def hold(session: Session, *, invocation: NewInvocation, share: int | None = None) -> None:
    """Reserve an invocation's credits; to hold the same invocation again changes nothing.

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
        case (result, _, _) if result != "held":
            raise over_budget(json.loads(result))


def dispatch(session: Session, invocation_id: UUID, *, token: UUID | None = None) -> Dispatch | None:
    """Take the right to call the provider; None means never to call it: it is taken, or the call has ended.

    A caller that lost the answer may ask again with its token.
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
    """How far a dispatched call has come."""

    invocation_id: UUID
    token: UUID
    streamed_tokens: int


def renew(session: Session, calls: Sequence[Progress]) -> int:
    """Renew the leases of a process's calls and note what each has streamed; give those renewed.

    The others have ended, or are being settled now.
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
    """How far a call has come, as its invocation says."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """How far a call has come, whose it is, and for how many seconds its lease still lasts, below zero once over."""

    stage: Stage
    remaining_seconds: float
    organization_id: UUID | None = None
    provider: str | None = None


def read_leases(session: Session, invocation_ids: Sequence[UUID]) -> dict[UUID, Lease]:
    """Tell how far each of some calls has come; one that does not exist has ended."""
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
    """Give back the hold of an invocation that nobody dispatched; False where a provider may have been asked."""
    return void(session, invocation_id) or session.fetch_one(_UNASKED, {"id": str(invocation_id)}) is not None


_UNASKED = "SELECT 1 FROM invocations WHERE id = %(id)s::uuid AND state IN ('voided', 'expired')"


def void(session: Session, invocation_id: UUID) -> bool:
    """Give back the hold of an invocation that was not dispatched; False when it was, or has ended already."""
    row = call(session, "credits_void", id=invocation_id)
    return row is not None and bool(row[0])


class HoldState(StrEnum):
    """Where an open call is."""

    HELD = "held"
    DISPATCHED = "dispatched"
    UNRESOLVED = "unresolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenHold(Attribution):
    """The credits that a call in progress reserves, in µcr, and who is responsible for it."""

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
    """List an organization's open holds, newest first. Raises PermissionDenied, ResourceNotFound."""
    authorize_administrative_reading(session, actor, Permission.CREDIT_READ, organization_id)
    statement = select(*columns_of(OpenHold, invocations)).where(
        invocations.c.organization_id == organization_id,
        invocations.c.state.in_([state.value for state in HoldState]),
    )
    return paginate(session, statement, descending(invocations.c.created_at, invocations.c.id), _hold, **page)


def _hold(row: Row[Any]) -> OpenHold:
    values = {**row._asdict(), "state": HoldState(row.state), "principal_id": principal_of(row)}
    return OpenHold(**values)
