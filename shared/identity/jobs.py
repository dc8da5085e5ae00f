"""The background work of identity; both kinds run on the schedule only."""

from __future__ import annotations

from dataclasses import dataclass

from shared.jobs import RETENTION, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class RotateDueKeys(Job):
    """Signing keys may have reached their age."""

    kind = "identity.rotate_due_keys"
    queue = RETENTION


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRevokedTokens(Job):
    """Revocations may have outlived the tokens they revoke."""

    kind = "identity.sweep_revoked_tokens"
    queue = RETENTION
