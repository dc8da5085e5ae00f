"""Handlers of identity's jobs."""

from __future__ import annotations

from celery import Celery

from shared.identity import jobs
from shared.identity.access_tokens import SWEEP_LIMIT, sweep_revoked_tokens
from shared.identity.key_rotation import rotate_due_keys
from shared.sweeping import drain
from workers.handling import Depot, bind_sweep


def bind_identity(app: Celery, depot: Depot) -> None:
    """Bind identity's jobs."""
    bind_sweep(app, jobs.RotateDueKeys, lambda: rotate_due_keys(depot.database, depot.settings))
    bind_sweep(app, jobs.SweepRevokedTokens, lambda: _sweep_revoked_tokens(depot))


def _sweep_revoked_tokens(depot: Depot) -> int:
    def batch() -> int:
        with depot.database.transaction() as session:
            return sweep_revoked_tokens(session)

    return drain(batch, size=SWEEP_LIMIT)
