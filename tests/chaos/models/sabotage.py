"""Rules of models and credits, broken."""

from __future__ import annotations

import random
from uuid import uuid4

from sqlalchemy import text

from shared.credits import holds
from shared.credits.settlement import Outcome
from shared.database import Database
from shared.models import settling
from shared.models.providers import routing

OFTEN = 0.9
_CHARGE_AGAIN = text("SELECT credits_post(:organization, 'charge', :reference, -7, 0)")


def drop_charges() -> None:
    """Forget to settle many calls: the sweep then charges an estimate for what was reported."""
    settle = settling.settle

    def settle_most(database: Database, dispatch: holds.Dispatch, outcome: Outcome) -> None:
        if random.random() < OFTEN:
            return
        settle(database, dispatch, outcome)

    setattr(settling, "settle", settle_most)  # noqa: B010 (ruff would write it so that mypy objects)


def charge_again() -> None:
    """Charge many calls a second time, under references of their own: the balance still adds up."""
    settle = settling.settle

    def settle_and_post(database: Database, dispatch: holds.Dispatch, outcome: Outcome) -> None:
        settle(database, dispatch, outcome)
        if random.random() < OFTEN:
            with database.transaction() as session:
                values = {"organization": dispatch.organization_id, "reference": str(uuid4())}
                session.execute(_CHARGE_AGAIN, values)

    setattr(settling, "settle", settle_and_post)  # noqa: B010 (ruff would write it so that mypy objects)


def repeat_consumed_calls() -> None:
    """Take every failure of an upstream for one that cost nothing, and ask again."""
    setattr(routing, "_ends_the_call", lambda _: False)  # noqa: B010 (a name it does not export)
    setattr(routing, "_may_be_repeated", lambda _: True)  # noqa: B010 (a name it does not export)
