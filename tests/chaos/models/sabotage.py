"""Rules of models and credits, broken."""

import random
from uuid import uuid4

from sqlalchemy import text

from shared.credits.settlement import Outcome
from shared.models.engine import Engine
from shared.models.heartbeats import Attended
from shared.models.providers import routing

OFTEN = 0.9
_CHARGE_AGAIN = text("SELECT credits_post(:organization, 'charge', :reference, -7, 0)")


def drop_charges() -> None:
    """Forget to settle many calls: the sweep then charges an estimate for what was reported."""
    settle = Engine.settle

    def settle_most(engine: Engine, attended: Attended, outcome: Outcome) -> None:
        if random.random() < OFTEN:
            return
        settle(engine, attended, outcome)

    setattr(Engine, "settle", settle_most)  # noqa: B010 (ruff would write it so that mypy objects)


def charge_again() -> None:
    """Charge many calls a second time, under references of their own: the balance still adds up."""
    settle = Engine.settle

    def settle_and_post(engine: Engine, attended: Attended, outcome: Outcome) -> None:
        settle(engine, attended, outcome)
        if random.random() < OFTEN:
            with engine.database.transaction() as session:
                values = {"organization": attended.dispatch.organization_id, "reference": str(uuid4())}
                session.execute(_CHARGE_AGAIN, values)

    setattr(Engine, "settle", settle_and_post)  # noqa: B010 (ruff would write it so that mypy objects)


def repeat_consumed_calls() -> None:
    """Take every failure of an upstream for one that cost nothing, and ask again."""
    setattr(routing, "_ends_the_call", lambda _: False)  # noqa: B010 (a name it does not export)
    setattr(routing, "_may_be_repeated", lambda _: True)  # noqa: B010 (a name it does not export)
