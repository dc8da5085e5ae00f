"""Rotate signing keys. A key is first `next`, then `current`, then `previous`, and is then deleted.

A key is published for at least five minutes before it signs, because clients cache the key set. A previous key
verifies tokens until the last token that it signed has expired. Every change of keys holds the same advisory lock.
"""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from joserfc.jwk import ECKey
from sqlalchemy import Row, delete, func, insert, select, update

from shared.config.settings import Settings
from shared.db.advisory_locks import AdvisoryLock, take
from shared.db.database import Database, Session
from shared.encryption import Encryption
from shared.identity.access.authorization import OPERATOR, Actor, authorize_operation
from shared.identity.audit import record
from shared.identity.errors import KeyNotPublished, ResourceNotFound
from shared.identity.tables import signing_keys
from shared.messaging.jobs import Context, sweep
from shared.messaging.queues import RETENTION
from shared.observability.telemetry import get_logger

log = get_logger(__name__)

PUBLICATION_SECONDS = 300
"""How long a key is published before it signs."""
STALE_SIGNER_SECONDS = 60
"""How long a process may still sign with a key that was just retired, because it has cached the keys."""
REQUEST_TOKEN_SECONDS = 300
"""The life of a request token (`shared/a2a/remote/request_tokens.py`), which the attribution key signs too."""


class KeyPurpose(StrEnum):
    """The kind of token that a key signs."""

    ACCESS = "access"
    ATTRIBUTION = "attribution"


class KeyState(StrEnum):
    """The stage of a key in its rotation."""

    NEXT = "next"
    CURRENT = "current"
    PREVIOUS = "previous"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """A signing key without its private key."""

    kid: str
    purpose: KeyPurpose
    state: KeyState
    created_at: datetime
    activated_at: datetime | None
    retired_at: datetime | None


def list_signing_keys(session: Session, *, actor: Actor) -> tuple[KeyRecord, ...]:
    """Return the signing keys of both purposes, oldest first, for an operator."""
    authorize_operation(actor)
    columns = (signing_keys.c[name] for name in KeyRecord.__slots__)
    rows = session.execute(select(*columns).order_by(signing_keys.c.created_at, signing_keys.c.kid))
    return tuple(
        KeyRecord(**{**row._asdict(), "purpose": KeyPurpose(row.purpose), "state": KeyState(row.state)})
        for row in rows
    )


def lifetime_seconds(settings: Settings, purpose: KeyPurpose) -> int:
    """Return how many seconds a retired key must still verify: the lifetime of a token plus STALE_SIGNER_SECONDS."""
    if purpose is KeyPurpose.ACCESS:
        return settings.access_token_seconds + STALE_SIGNER_SECONDS
    return max(settings.attribution_seconds, REQUEST_TOKEN_SECONDS) + STALE_SIGNER_SECONDS


def ensure_keys(database: Database, settings: Settings) -> None:
    """Create each current or next key that is missing."""
    with database.transaction() as session:
        take(session, AdvisoryLock.SIGNING_KEYS)
        for purpose in KeyPurpose:
            _ensure(session, settings, purpose)


@sweep("identity.rotate_due_keys", queue=RETENTION, every_seconds=600)
def _rotate_due_keys(context: Context) -> int:
    return rotate_due_keys(context.database, context.settings)


def rotate_due_keys(database: Database, settings: Settings) -> int:
    """Rotate keys that have signed for `signing_key_days`, and delete expired keys. Return how many were rotated."""
    with database.transaction() as session:
        take(session, AdvisoryLock.SIGNING_KEYS)
        due = [purpose for purpose in KeyPurpose if _is_due(session, settings, purpose)]
        for purpose in due:
            _rotate(session, settings, purpose, actor=OPERATOR)
        for purpose in KeyPurpose:
            _drop_spent(session, settings, purpose)
    return len(due)


def rotate_keys(database: Database, settings: Settings, *, actor: Actor) -> None:
    """Rotate the keys of both purposes now, for an operator.

    Raises KeyNotPublished, without rotating any key, if a next key is younger than PUBLICATION_SECONDS.
    """
    authorize_operation(actor)
    with database.transaction() as session:
        take(session, AdvisoryLock.SIGNING_KEYS)
        for purpose in KeyPurpose:
            _ensure(session, settings, purpose)
            _rotate(session, settings, purpose, actor=actor)


def revoke_key(database: Database, settings: Settings, *, actor: Actor, kid: str) -> None:
    """Delete a leaked key and so invalidate every token that it signed, for an operator. Raises ResourceNotFound.

    If the deleted key was the current one, the next key replaces it, even if that key was published less than
    PUBLICATION_SECONDS ago.
    """
    authorize_operation(actor)
    with database.transaction() as session:
        take(session, AdvisoryLock.SIGNING_KEYS)
        # Delete the key instead of retiring it: a retired key would still verify tokens that the thief signs.
        purpose = session.execute(
            delete(signing_keys).where(signing_keys.c.kid == kid).returning(signing_keys.c.purpose)
        ).scalar()
        if purpose is None:
            raise ResourceNotFound
        _promote_next(session, KeyPurpose(purpose))
        _ensure(session, settings, KeyPurpose(purpose))
        record(session, actor, "signing_key.revoked", kid)


def _ensure(session: Session, settings: Settings, purpose: KeyPurpose) -> None:
    states = set(
        session.execute(select(signing_keys.c.state).where(signing_keys.c.purpose == purpose)).scalars()
    )
    for state in (KeyState.CURRENT, KeyState.NEXT):
        if state not in states:
            _create(session, settings, purpose, state)


def _is_due(session: Session, settings: Settings, purpose: KeyPurpose) -> bool:
    _ensure(session, settings, purpose)
    age = timedelta(days=settings.signing_key_days)
    old = _find(session, purpose, KeyState.CURRENT, signing_keys.c.activated_at <= func.now() - age)
    # If the next key is too young, rotate in a later sweep.
    return old is not None and _published(session, purpose) is not None


def _published(session: Session, purpose: KeyPurpose) -> Row[Any] | None:
    old_enough = signing_keys.c.created_at <= func.now() - timedelta(seconds=PUBLICATION_SECONDS)
    return _find(session, purpose, KeyState.NEXT, old_enough)


def _rotate(session: Session, settings: Settings, purpose: KeyPurpose, *, actor: Actor) -> None:
    upcoming = _published(session, purpose)
    if upcoming is None:
        raise KeyNotPublished
    # Retire the current key before promoting the next one: a unique index allows one current key per purpose.
    session.execute(
        update(signing_keys)
        .where(signing_keys.c.purpose == purpose, signing_keys.c.state == KeyState.CURRENT)
        .values(state=KeyState.PREVIOUS, retired_at=func.now())
    )
    _promote_next(session, purpose)
    _create(session, settings, purpose, KeyState.NEXT)
    record(session, actor, "signing_key.rotated", upcoming.kid)
    log.info("signing_key.rotated", purpose=purpose, kid=upcoming.kid)


def _promote_next(session: Session, purpose: KeyPurpose) -> None:
    if _find(session, purpose, KeyState.CURRENT) is None:
        session.execute(
            update(signing_keys)
            .where(signing_keys.c.purpose == purpose, signing_keys.c.state == KeyState.NEXT)
            .values(state=KeyState.CURRENT, activated_at=func.now())
        )


def _drop_spent(session: Session, settings: Settings, purpose: KeyPurpose) -> None:
    life = timedelta(seconds=lifetime_seconds(settings, purpose))
    session.execute(
        delete(signing_keys).where(
            signing_keys.c.purpose == purpose,
            signing_keys.c.state == KeyState.PREVIOUS,
            signing_keys.c.retired_at <= func.now() - life,
        )
    )


def _find(session: Session, purpose: KeyPurpose, state: KeyState, *conditions: Any) -> Row[Any] | None:
    return session.execute(
        select(signing_keys.c.kid).where(
            signing_keys.c.purpose == purpose, signing_keys.c.state == state, *conditions
        )
    ).one_or_none()


def _create(session: Session, settings: Settings, purpose: KeyPurpose, state: KeyState) -> None:
    key = ECKey.generate_key("P-256")
    session.execute(
        insert(signing_keys).values(
            # Use the thumbprint as the id, because it cannot collide with the id of another key (RFC 7638).
            kid=key.thumbprint(),
            purpose=purpose,
            state=state,
            private_jwk_encrypted=Encryption(settings).encrypt(json.dumps(key.as_dict(private=True))),
            activated_at=func.now() if state is KeyState.CURRENT else None,
        )
    )
