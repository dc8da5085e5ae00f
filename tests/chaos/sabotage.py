"""The service's processes with rules broken, to prove that the comparison at the end notices.

`python -m tests.chaos.sabotage MODE,… MODULE ARGUMENTS…` breaks the rules, then becomes the module, as `python -m`
would. What each workload is to notice is in a function of its own here, by hand: `python -m tests.chaos --seconds 15
--only models --sabotage drop-charges` must fail. The suite runs two (`test_sabotage.py`).
"""

from __future__ import annotations

import os
import random
import runpy
import signal
import sys
from collections.abc import Callable, Sequence
from uuid import UUID, uuid4

from sqlalchemy import delete, text

from shared.credits import holds
from shared.credits.settlement import Outcome
from shared.database import Database
from shared.files import collection, content, expiry, sweeps
from shared.files.blobs import staging
from shared.files.blobs.base import Blob, BlobStore
from shared.files.resources import File
from shared.files.tables import blobs
from shared.models import settling
from shared.models.providers import routing

DEATHS_IN_BETWEEN = 0.5
SELDOM = 0.2


def rows_before_unlink() -> None:
    """Forget where bytes are before they are removed: a death in between leaks them."""

    def remove_claimed(database: Database, store: BlobStore, claimed: Sequence[Blob]) -> int:
        ids = [blob.version_id for blob in claimed]
        with database.autocommit() as session:
            session.execute(delete(blobs).where(blobs.c.version_id.in_(ids)))
        if random.random() < DEATHS_IN_BETWEEN:
            os.kill(os.getpid(), signal.SIGKILL)
        store.remove(claimed)
        return len(claimed)

    collection.remove_claimed = remove_claimed
    setattr(expiry, "remove_claimed", remove_claimed)  # noqa: B010 (a name it does not export)


def sweep_without_asking() -> None:
    """Sweep away staged bytes without asking whether a row owns them: acknowledged content is lost."""

    def take_all(database: Database, ids: Sequence[UUID]) -> set[UUID]:
        return set(ids)

    sweeps._doom_ownerless = take_all


def ignore_staging_lock() -> None:
    """Take bytes that are being received for abandoned: the upload then fails, though nobody did wrong."""
    setattr(staging, "_is_lockable", bool)  # noqa: B010 (of another type, but any descriptor will do)


def serve_the_ended() -> None:
    """Serve content to callers after its end."""

    def refuse_nothing(file: File) -> None:
        del file

    setattr(content, "refuse_ended", refuse_nothing)  # noqa: B010 (a name it does not export)


def drop_charges() -> None:
    """Forget to settle one call in five: the sweep then charges an estimate for what was reported."""
    settle = settling.settle

    def settle_most(database: Database, dispatch: holds.Dispatch, outcome: Outcome) -> None:
        if random.random() < SELDOM:
            return
        settle(database, dispatch, outcome)

    setattr(settling, "settle", settle_most)  # noqa: B010 (ruff would write it so that mypy objects)


def charge_again() -> None:
    """Charge one call in five a second time, under a reference of its own: the balance still adds up."""
    settle = settling.settle

    def settle_and_post(database: Database, dispatch: holds.Dispatch, outcome: Outcome) -> None:
        settle(database, dispatch, outcome)
        if random.random() < SELDOM:
            with database.transaction() as session:
                values = {"organization": dispatch.organization_id, "reference": str(uuid4())}
                session.execute(_CHARGE_AGAIN, values)

    setattr(settling, "settle", settle_and_post)  # noqa: B010 (ruff would write it so that mypy objects)


def repeat_consumed_calls() -> None:
    """Take every failure of an upstream for one that cost nothing, and ask again."""
    setattr(routing, "_ends_the_call", lambda _: False)  # noqa: B010 (a name it does not export)
    setattr(routing, "_may_be_repeated", lambda _: True)  # noqa: B010 (a name it does not export)


_CHARGE_AGAIN = text("SELECT credits_post(:organization, 'charge', :reference, -7, 0)")

MODES: dict[str, Callable[[], None]] = {
    break_rule.__name__.replace("_", "-"): break_rule
    for break_rule in (
        rows_before_unlink,
        sweep_without_asking,
        ignore_staging_lock,
        serve_the_ended,
        drop_charges,
        charge_again,
        repeat_consumed_calls,
    )
}


def sabotaged(command: Sequence[str], modes: Sequence[str]) -> list[str]:
    """Give the command of a Python module with rules broken."""
    at = command.index("-m")
    return [*command[:at], "-m", __name__, ",".join(modes), *command[at + 1 :]]


def main() -> None:
    """Break the rules and become the module."""
    _, modes, module, *arguments = sys.argv
    for mode in modes.split(","):
        MODES[mode]()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
