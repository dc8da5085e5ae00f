"""Decrypt the valid webhook secrets of a distribution, and sign webhooks with these secrets.

After a rotation the replaced secret stays valid until its overlap ends (Standard Webhooks 1.0.0). Callers must not
store the decrypted secrets.
"""

import base64
import hmac
from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import bindparam, case, func, select, update

from shared.db.database import Database, Session
from shared.encryption import Encryption
from shared.identity.secrets import WEBHOOK_SECRET_PREFIX
from shared.identity.tables import distributions
from shared.runtime.batches import run_in_batches

BATCH_SIZE = 1000


def list_webhook_secrets(session: Session, encryption: Encryption, distribution_id: UUID) -> Sequence[str]:
    """Return a distribution's valid secrets as `whsec_…`, newest first.

    The list is empty if the distribution is unknown or disabled.
    """
    row = session.execute(_SECRETS, {"distribution": distribution_id}).one_or_none()
    if row is None:
        return ()
    return [encryption.decrypt(bytes(secret)) for secret in (row.current, row.previous) if secret is not None]


def forget_replaced_secrets(database: Database) -> int:
    """Erase replaced secrets whose overlap has ended. Return how many."""
    return run_in_batches(database, _FORGET, size=BATCH_SIZE, swept="replaced_secrets")


def sign(secret: str, text: bytes) -> bytes:
    """Return the HMAC-SHA256 of a text under a secret; the text is id, `.`, seconds since 1970, `.` and body."""
    # Standard Webhooks signs with the decoded bytes and not with the text of the secret.
    key = base64.b64decode(secret.removeprefix(WEBHOOK_SECRET_PREFIX))
    return hmac.digest(key, text, "sha256")


_SECRETS = select(
    distributions.c.webhook_secret_encrypted.label("current"),
    case(
        (
            distributions.c.previous_webhook_secret_expires_at > func.now(),
            distributions.c.previous_webhook_secret_encrypted,
        ),
    ).label("previous"),
).where(distributions.c.id == bindparam("distribution"), distributions.c.disabled_at.is_(None))
# Erase secrets that are no longer valid, so that a stolen backup contains fewer secrets.
_FORGET = (
    update(distributions)
    .where(
        distributions.c.id.in_(
            select(distributions.c.id)
            .where(
                distributions.c.previous_webhook_secret_encrypted.is_not(None),
                distributions.c.previous_webhook_secret_expires_at <= func.now(),
            )
            .limit(bindparam("limit"))
        )
    )
    .values(previous_webhook_secret_encrypted=None, previous_webhook_secret_expires_at=None)
)
