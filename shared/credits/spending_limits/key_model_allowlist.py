"""The models that a key may call in an organization. The hold refuses other models (`credits_refusal.sql`)."""

from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, delete, select
from sqlalchemy.dialects.postgresql import insert

from shared.credits.policies import lock_balance
from shared.credits.spending_limits.budgets import SubjectKind, count_limits, require_subject
from shared.credits.tables import key_models
from shared.db.database import Session
from shared.errors import invalid_field
from shared.identity.access.authorization import Actor, authorize_administration
from shared.identity.access.callers import Caller
from shared.identity.access.permissions import Permission
from shared.identity.audit import record
from shared.identity.errors import ResourceNotFound

MAX_MODELS = 200


def set_key_models(
    session: Session, *, actor: Actor, organization_id: UUID, key_id: UUID, models: tuple[str, ...]
) -> tuple[str, ...]:
    """Allow a key only these models in an organization. Return the models sorted and without duplicates.

    Raises PermissionDenied, ValidationFailed, ResourceNotFound, TooManyLimits.
    """
    authorize_administration(actor, Permission.CREDIT_MANAGE, organization_id)
    if not 1 <= len(models) <= MAX_MODELS:
        raise invalid_field("models", f"must name 1 to {MAX_MODELS} models")
    lock_balance(session, organization_id)
    require_subject(session, organization_id, SubjectKind.API_KEY, key_id)
    # Sort and deduplicate, so that the comparison with the stored list ignores order and duplicates.
    named = sorted(set(models))
    present = find_key_models(session, organization_id, key_id)
    if present == tuple(named):
        return present
    statement = insert(key_models).values(organization_id=organization_id, api_key_id=key_id, models=named)
    session.execute(statement.on_conflict_do_update(constraint="pk_key_models", set_={"models": named}))
    count_limits(session, organization_id, int(present is None))
    _record_models(session, actor, "set", organization_id, key_id, models=", ".join(named))
    return tuple(named)


def get_key_models(session: Session, *, actor: Actor, organization_id: UUID, key_id: UUID) -> tuple[str, ...]:
    """Return the models that a key may call. Raises PermissionDenied, and ResourceNotFound without an allowlist."""
    authorize_administration(actor, Permission.CREDIT_READ, organization_id)
    models = find_key_models(session, organization_id, key_id)
    if models is None:
        raise ResourceNotFound
    return models


def find_key_models(session: Session, organization_id: UUID, key_id: UUID) -> tuple[str, ...] | None:
    """Return the models that a key may call, or None if it may call all models."""
    models = session.execute(select(key_models.c.models).where(*_of_key(organization_id, key_id))).scalar()
    return None if models is None else tuple(models)


def find_caller_models(session: Session, caller: Caller) -> tuple[str, ...] | None:
    """Return the models that the caller's key may call, or None without an allowlist or for an access token."""
    if caller.payer_id is None or caller.api_key_id is None:
        return None
    return find_key_models(session, caller.payer_id, caller.api_key_id)


def remove_key_models(session: Session, *, actor: Actor, organization_id: UUID, key_id: UUID) -> None:
    """Remove a key's allowlist, so that it may call all models. Raises PermissionDenied, ResourceNotFound."""
    authorize_administration(actor, Permission.CREDIT_MANAGE, organization_id)
    lock_balance(session, organization_id)
    if session.execute(delete(key_models).where(*_of_key(organization_id, key_id))).rowcount:
        count_limits(session, organization_id, -1)
        _record_models(session, actor, "removed", organization_id, key_id)


def _of_key(organization_id: UUID, key_id: UUID) -> tuple[ColumnElement[bool], ...]:
    return key_models.c.organization_id == organization_id, key_models.c.api_key_id == key_id


def _record_models(
    session: Session, actor: Actor, verb: str, organization_id: UUID, key_id: UUID, **details: Any
) -> None:
    action = f"api_key.models_{verb}"
    record(session, actor, action, key_id, organization_id=organization_id, **details)
