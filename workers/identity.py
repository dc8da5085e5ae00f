"""Handlers of identity's jobs."""

from __future__ import annotations

from celery import Celery

from shared.identity import jobs
from shared.identity.access_tokens import SWEEP_LIMIT, sweep_revoked_tokens
from shared.identity.key_rotation import rotate_due_keys
from workers.handling import Depot, bind


def bind_identity(app: Celery, depot: Depot) -> None:
    """Bind identity's jobs."""
    bind(app, jobs.RotateDueKeys, lambda: rotate_due_keys(depot.database, depot.settings))
    bind(app, jobs.SweepRevokedTokens, lambda: _sweep_revoked_tokens(depot))


def _sweep_revoked_tokens(depot: Depot) -> int:
    swept = 0
    while True:
        with depot.database.transaction() as session:
            batch = sweep_revoked_tokens(session)
        swept += batch
        if batch < SWEEP_LIMIT:
            return swept
