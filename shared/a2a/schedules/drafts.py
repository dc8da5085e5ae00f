"""Validate schedules before they are stored: time, message, behavior and receiver."""

from typing import Any
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import select

from shared.a2a.errors import InvalidParams
from shared.a2a.identifiers import check_identifier
from shared.a2a.schedules.cron import CronInvalid, parse_cron
from shared.a2a.schedules.resources import MAX_CATCH_UP, ScheduleDraft
from shared.a2a.tables import behaviors
from shared.a2a.types import Message, MessageRole
from shared.db.database import Session
from shared.errors import FieldError, ValidationFailed
from shared.identity.field_validation import require_name
from shared.identity.tables import identities


def checked_values(
    session: Session, draft: ScheduleDraft, deployment_id: UUID, organization_id: UUID
) -> dict[str, Any]:
    """Return the columns of a draft for a deployment. Raises ValidationFailed."""
    try:
        cron = parse_cron(draft.cron, draft.time_zone)
    except CronInvalid as invalid:
        raise _wrong("timeZone" if "time zone" in str(invalid) else "cron", str(invalid)) from invalid
    if draft.behavior_id is not None:
        _require_behavior(session, draft.behavior_id, deployment_id)
    if draft.principal_identity_id is not None:
        _require_principal(session, draft.principal_identity_id, organization_id)
    if not 1 <= draft.catch_up_limit <= MAX_CATCH_UP:
        raise _wrong("catchUpLimit", f"must be from 1 to {MAX_CATCH_UP}")
    return {
        "name": require_name(draft.name),
        "cron": cron.expression,
        "time_zone": cron.time_zone,
        "message": _checked_template(draft.message),
        "behavior_id": draft.behavior_id,
        "principal_id": draft.principal_identity_id,
        "missed": draft.missed.value,
        "catch_up_limit": draft.catch_up_limit,
    }


def _checked_template(template: dict[str, Any]) -> dict[str, Any]:
    """Check a message template, and return its members. Each run sets the message's id and role itself."""
    # Check both spellings, because the protocol accepts camelCase and snake_case.
    ours = {"messageId", "message_id", "role", "taskId", "task_id"} & template.keys()
    if ours:
        raise _wrong(f"message.{min(ours)}", "must not be set: the schedule sets it")
    try:
        wire = message_of(template, "template").to_wire()
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        fields = [
            FieldError(
                location="body", name=".".join(map(str, ("message", *each["loc"]))), message=each["msg"]
            )
            for each in found
        ]
        raise ValidationFailed(errors=fields) from error
    try:
        check_identifier("message.contextId", wire.get("contextId", "none"))
    except InvalidParams as error:
        raise ValidationFailed(errors=error.errors) from error
    return {name: value for name, value in wire.items() if name not in ("messageId", "role")}


def _require_behavior(session: Session, behavior_id: UUID, deployment_id: UUID) -> None:
    statement = select(behaviors.c.id).where(
        behaviors.c.id == behavior_id, behaviors.c.deployment_id == deployment_id
    )
    if session.execute(statement).first() is None:
        raise _wrong("behaviorId", "is not a behavior of this deployment")


def _require_principal(session: Session, identity_id: UUID, organization_id: UUID) -> None:
    """Raise unless the identity is a Principal Identity of the deployment's organization, which pays."""
    statement = select(identities.c.id).where(
        identities.c.id == identity_id,
        identities.c.organization_id == organization_id,
        identities.c.kind == "PrincipalIdentity",
    )
    if session.execute(statement).first() is None:
        raise _wrong("principalIdentityId", "is not a Principal Identity of this organization")


def message_of(template: dict[str, Any], message_id: str) -> Message:
    """Return the message of a template. Raises pydantic's ValidationError."""
    return Message.model_validate({**template, "messageId": message_id, "role": MessageRole.USER})


def _wrong(name: str, message: str) -> ValidationFailed:
    return ValidationFailed(errors=[FieldError(location="body", name=name, message=message)])
