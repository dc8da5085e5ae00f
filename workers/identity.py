"""Handlers of identity's jobs."""

from __future__ import annotations

from celery import Celery

from shared.identity import jobs
from shared.identity.access_tokens import SWEEP_LIMIT, sweep_revoked_tokens
from shared.identity.key_rotation import rotate_due_keys
from shared.sweeping import drain
from workers.handling import WorkerContext, bind_sweep


def bind_identity(app: Celery, context: WorkerContext) -> None:
    """Bind identity's jobs."""
    bind_sweep(app, jobs.RotateDueKeys, lambda: rotate_due_keys(context.database, context.settings))
    bind_sweep(app, jobs.SweepRevokedTokens, lambda: _sweep_revoked_tokens(context))


def _sweep_revoked_tokens(context: WorkerContext) -> int:
    def batch() -> int:
        with context.database.transaction() as session:
            return sweep_revoked_tokens(session)

    return drain(batch, size=SWEEP_LIMIT)
