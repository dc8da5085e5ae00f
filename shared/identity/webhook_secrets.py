"""Read a distribution's webhook secrets back: one to sign with, and all those that are good to verify with.

After a rotation the replaced secret verifies until its overlap has ended, so that no sender's clock or deployment has
to be exact (Standard Webhooks). Callers keep a secret only for as long as they use it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import bindparam, case, func, select

from shared.database import Session
from shared.identity.encryption import Encryption
from shared.identity.tables import distributions


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSecrets:
    """The secrets of one distribution, as `whsec_…`."""

    current: str = field(repr=False)
    accepted: tuple[str, ...] = field(repr=False)


def find_webhook_secrets(
    session: Session, encryption: Encryption, distribution_id: UUID
) -> WebhookSecrets | None:
    """Read the secrets of a distribution; None when it is unknown or disabled."""
    row = session.execute(_SECRETS, {"distribution": distribution_id}).one_or_none()
    if row is None:
        return None
    current = encryption.decrypt(bytes(row.current))
    previous = () if row.previous is None else (encryption.decrypt(bytes(row.previous)),)
    return WebhookSecrets(current=current, accepted=(current, *previous))


_SECRETS = select(
    distributions.c.webhook_secret_encrypted.label("current"),
    case(
        (
            distributions.c.previous_webhook_secret_expires_at > func.now(),
            distributions.c.previous_webhook_secret_encrypted,
        ),
    ).label("previous"),
).where(distributions.c.id == bindparam("distribution"), distributions.c.disabled_at.is_(None))
