"""Sabotage of budgets: each function breaks one rule in this process."""

import random
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import text

from shared.credits import holds
from shared.credits.holds import NewInvocation
from shared.credits.settlement import Outcome
from shared.credits.spending_limits import budgets
from shared.credits.spending_limits.budgets import Budget, Unit
from shared.db.database import Session
from shared.identity.access.authorization import Actor
from shared.models.engine import Engine
from shared.models.heartbeats import LeasedCall

OFTEN = 0.9
_COUNT_MORE = text(
    "UPDATE budgets SET spent = spent + :spent, held = held + :held"
    " WHERE id IN (SELECT unnest(budget_ids) FROM invocations WHERE id = :invocation)"
)


def hold_nothing() -> None:
    """Admit calls without a hold, so that concurrent calls exceed a budget together."""
    hold = holds.hold

    def hold_most_without(session: Session, *, invocation: NewInvocation, share: int | None = None) -> None:
        is_without = random.random() < OFTEN
        held = replace(invocation, hold=0, held_tokens=0) if is_without else invocation
        hold(session, invocation=held, share=share)

    setattr(holds, "hold", hold_most_without)  # noqa: B010 (ruff would write it so that mypy objects)


def count_more() -> None:
    """Count more in budgets than calls have cost."""
    _after_settling(spent=7, held=0)


def leak_holds() -> None:
    """Release less than a budget held."""
    _after_settling(spent=0, held=1)


def forget_changes() -> None:
    """Acknowledge many changes of budgets without storing them."""
    change: Any = budgets.change_budget

    def change_some(
        session: Session, *, actor: Actor, organization_id: UUID, budget_id: UUID, amount: int
    ) -> Budget:
        before = budgets.get_budget(
            session, actor=actor, organization_id=organization_id, budget_id=budget_id
        )
        if before.unit is Unit.CREDITS and random.random() < OFTEN:
            amount = before.amount
        changed: Budget = change(
            session, by=actor, organization_id=organization_id, budget_id=budget_id, amount=amount
        )
        return changed

    setattr(budgets, "change_budget", change_some)  # noqa: B010 (ruff would write it so that mypy objects)


def _after_settling(*, spent: int, held: int) -> None:
    settle = Engine.settle

    def settle_and_count(engine: Engine, leased: LeasedCall, outcome: Outcome) -> str | None:
        shown = settle(engine, leased, outcome)
        with engine.database.transaction() as session:
            invocation = leased.dispatch.invocation_id
            session.execute(_COUNT_MORE, {"spent": spent, "held": held, "invocation": invocation})
        return shown

    setattr(Engine, "settle", settle_and_count)  # noqa: B010 (ruff would write it so that mypy objects)
