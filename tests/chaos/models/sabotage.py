"""Sabotage of models and credits: each function breaks one rule in this process."""

import random
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import text

from shared.credits import holds, settlement
from shared.credits.prices import Prices
from shared.credits.settlement import Outcome, Settlement
from shared.db.database import Session
from shared.models.engine import Engine
from shared.models.heartbeats import LeasedCall
from shared.models.providers import routing
from shared.models.queue.call_queue import AcceptedRequest, CallQueue, write_request

OFTEN = 0.9
_CHARGE_AGAIN = text("SELECT credits_post(:organization, 'charge', :reference, -7, 0)")
_PAYER = text("SELECT organization_id FROM invocations WHERE id = :id")
_DISPATCHED = text("SELECT * FROM invocations WHERE id = :id AND dispatch_token IS NOT NULL")


def drop_charges() -> None:
    """Skip the settlement of many calls: the sweep then charges an estimate instead of the reported usage."""
    settle = Engine.settle

    def settle_most(engine: Engine, leased: LeasedCall, outcome: Outcome) -> None:
        if random.random() < OFTEN:
            return
        settle(engine, leased, outcome)

    setattr(Engine, "settle", settle_most)  # noqa: B010 (ruff would write it so that mypy objects)


def charge_again() -> None:
    """Charge many calls a second time under another reference: the balance still adds up."""
    settle = Engine.settle

    def settle_and_post(engine: Engine, leased: LeasedCall, outcome: Outcome) -> None:
        settle(engine, leased, outcome)
        if random.random() < OFTEN:
            with engine.database.transaction() as session:
                _charge(session, leased.dispatch.organization_id)

    setattr(Engine, "settle", settle_and_post)  # noqa: B010 (ruff would write it so that mypy objects)


def charge_each_attempt() -> None:
    """Charge a call at each attempt to settle it, as if an attempt whose response was lost had charged nothing."""
    settle = settlement.settle
    attempted: set[UUID] = set()

    def settle_anew(session: Session, invocation_id: UUID, token: UUID, outcome: Outcome) -> Settlement:
        is_repeated = invocation_id in attempted
        attempted.add(invocation_id)
        settled = settle(session, invocation_id, token, outcome)
        if is_repeated:
            _charge(session, session.execute(_PAYER, {"id": invocation_id}).scalar_one())
        return settled

    settlement.settle = settle_anew


def give_calls_again() -> None:
    """Let every recipient of a call's message make the call, also if it was made already."""
    dispatch, take_request = holds.dispatch, CallQueue.take_request

    def give_again(
        session: Session, invocation_id: UUID, *, token: UUID | None = None
    ) -> holds.Dispatch | None:
        given = dispatch(session, invocation_id, token=token)
        row = session.execute(_DISPATCHED, {"id": invocation_id}).one_or_none()
        if given is not None or row is None:
            return given
        return holds.Dispatch(
            invocation_id=invocation_id,
            organization_id=row.organization_id,
            token=row.dispatch_token,
            model=row.model,
            hold=row.hold,
            prices=Prices.of(row),
        )

    def take_and_keep(queue: CallQueue, invocation_id: UUID) -> AcceptedRequest | None:
        request = take_request(queue, invocation_id)
        if request is not None:
            valkey: Any = queue._valkey
            valkey.execute_command(*write_request(invocation_id, request))
        return request

    holds.dispatch = give_again
    setattr(CallQueue, "take_request", take_and_keep)  # noqa: B010 (ruff would write it so that mypy objects)


def repeat_consumed_calls() -> None:
    """Treat every upstream failure as free of charge, and retry."""
    setattr(routing, "_ends_the_call", lambda _: False)  # noqa: B010 (the module does not export the name)
    setattr(routing, "_may_be_repeated", lambda _: True)  # noqa: B010 (the module does not export the name)


def _charge(session: Session, organization_id: UUID) -> None:
    session.execute(_CHARGE_AGAIN, {"organization": organization_id, "reference": str(uuid4())})
