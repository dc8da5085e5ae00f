"""Administer the behaviors of deployments. A behavior defines how an agent replies and a skill on the agent's card.

The first behavior of a deployment becomes the default. An administrator can make another behavior the default. The
default behavior can be deleted only if there is no other behavior. Turns that wait for a deleted behavior fail. Only
administrators read instructions and scripts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import delete, func, insert, select, update

from shared.a2a.agents.directory import behavior_settings
from shared.a2a.behaviors.script_parser import ScriptInvalid, script_of
from shared.a2a.tables import behaviors
from shared.a2a.updates import BehaviorKind, BehaviorSettings, DeclaredExtension
from shared.db.database import Session
from shared.errors import DomainError, FieldError, Kind, ValidationFailed
from shared.identity.access.authorization import Actor, authorize_for_deployment
from shared.identity.access.permissions import Permission
from shared.identity.audit import record
from shared.identity.conditional_updates import set_values
from shared.identity.field_validation import require_name
from shared.identity.lookups import get_one
from shared.identity.tables import deployments
from shared.ids import new_id
from shared.pagination import Page, Position, ascending, paginate

BEHAVIORS_LIMIT = 50
EXTENSIONS_LIMIT = 50
_TEXTS_LIMIT = 50
_URI_CHARACTERS = 2048


class BehaviorNameTaken(DomainError):
    """The deployment has a behavior of this name already."""

    code = "behavior_name_taken"
    kind = Kind.CONFLICT


class BehaviorOfEndpoint(DomainError):
    """This behavior sends messages to the deployment's endpoint; change or delete the endpoint instead."""

    code = "behavior_of_endpoint"
    kind = Kind.CONFLICT


class DefaultBehavior(DomainError):
    """The default behavior is removed last; make another one the default first."""

    code = "default_behavior"
    kind = Kind.CONFLICT


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviorDraft:
    """The values for a behavior.

    A model behavior has a `model`. A script behavior has a `script`; if `script` is None, it uses the file of
    `A2A_SCRIPT`.
    """

    name: str
    kind: BehaviorKind
    description: str
    model: str | None = None
    instructions: str = ""
    script: str | None = None
    tags: Sequence[str] = ()
    examples: Sequence[str] = ()
    input_modes: Sequence[str] = ()
    output_modes: Sequence[str] = ()
    extensions: Sequence[DeclaredExtension] = ()


def authorize_drafting(session: Session, *, actor: Actor, deployment_id: UUID) -> None:
    """Raise unless the actor may create behaviors of this deployment."""
    authorize_for_deployment(session, actor, Permission.DEPLOYMENT_MANAGE, deployment_id)


def authorize_changing(session: Session, *, actor: Actor, behavior_id: UUID) -> None:
    """Raise unless the actor may change this behavior."""
    _authorized(session, actor, Permission.DEPLOYMENT_MANAGE, behavior_id)


def check_draft(draft: BehaviorDraft) -> BehaviorDraft:
    """Check a draft and return it. Raises ValidationFailed.

    Call this function outside of transactions, because the first parse of a script may take a second.
    """
    _values(draft)
    return draft


def create_behavior(
    session: Session, *, actor: Actor, deployment_id: UUID, draft: BehaviorDraft, is_default: bool = False
) -> BehaviorSettings:
    """Create a behavior of a deployment. Raises BehaviorNameTaken, ValidationFailed."""
    organization_id = authorize_for_deployment(session, actor, Permission.DEPLOYMENT_MANAGE, deployment_id)
    values = _values(draft)
    lock_deployment(session, deployment_id)
    # Count under the lock: otherwise two concurrent requests could exceed the limit, or both create a default.
    count = session.execute(
        select(func.count()).where(behaviors.c.deployment_id == deployment_id)
    ).scalar_one()
    if count >= BEHAVIORS_LIMIT:
        raise _wrong("name", f"would exceed the limit of {BEHAVIORS_LIMIT} behaviors for a deployment")
    require_free_name(session, deployment_id, values["name"], None)
    # Clear the old default before the insert, because the unique index allows only one default.
    if is_default or count == 0:
        unset_default(session, deployment_id)
    behavior_id = new_id()
    session.execute(
        insert(behaviors).values(
            id=behavior_id, deployment_id=deployment_id, is_default=is_default or count == 0, **values
        )
    )
    _record(session, actor, "behavior.created", behavior_id, organization_id)
    return _get(session, behavior_id)


def get_behavior(session: Session, *, actor: Actor, behavior_id: UUID) -> BehaviorSettings:
    """Return a behavior. Raises ResourceNotFound, PermissionDenied."""
    return _authorized(session, actor, Permission.DEPLOYMENT_MANAGE, behavior_id)[0]


def list_behaviors(
    session: Session, *, actor: Actor, deployment_id: UUID, **page: Unpack[Position]
) -> Page[BehaviorSettings]:
    """Return a page of the behaviors of a deployment."""
    authorize_for_deployment(session, actor, Permission.DEPLOYMENT_MANAGE, deployment_id)
    statement = select(behaviors).where(behaviors.c.deployment_id == deployment_id)
    return paginate(session, statement, ascending(behaviors.c.id), behavior_settings, **page)


def replace_behavior(
    session: Session, *, actor: Actor, behavior_id: UUID, draft: BehaviorDraft
) -> BehaviorSettings:
    """Replace a behavior under the same id. Running turns continue with the old values.

    Raises BehaviorOfEndpoint, BehaviorNameTaken and ValidationFailed.
    """
    before, organization_id = _authorized(session, actor, Permission.DEPLOYMENT_MANAGE, behavior_id)
    _require_own(before)
    # Check the values before the lock, because parsing a script may take a second.
    values = _values(draft)
    lock_deployment(session, before.deployment_id)
    require_free_name(session, before.deployment_id, values["name"], behavior_id)
    if set_values(session, behaviors, behavior_id, values, updated_at=func.now()):
        _record(session, actor, "behavior.replaced", behavior_id, organization_id)
    return _get(session, behavior_id)


def make_default_behavior(session: Session, *, actor: Actor, behavior_id: UUID) -> BehaviorSettings:
    """Make a behavior the default. The default behavior answers messages that name no skill."""
    behavior, organization_id = _authorized(session, actor, Permission.DEPLOYMENT_MANAGE, behavior_id)
    lock_deployment(session, behavior.deployment_id)
    if not _get(session, behavior_id).is_default:
        unset_default(session, behavior.deployment_id)
        set_values(session, behaviors, behavior_id, {"is_default": True}, updated_at=func.now())
        _record(session, actor, "behavior.made_default", behavior_id, organization_id)
    return _get(session, behavior_id)


def remove_behavior(session: Session, *, actor: Actor, behavior_id: UUID) -> None:
    """Delete a behavior of a deployment.

    Raises BehaviorOfEndpoint if the behavior belongs to an endpoint. Raises DefaultBehavior if the behavior is the
    default and the deployment has other behaviors.
    """
    behavior, organization_id = _authorized(session, actor, Permission.DEPLOYMENT_MANAGE, behavior_id)
    _require_own(behavior)
    lock_deployment(session, behavior.deployment_id)
    behavior = _get(session, behavior_id)  # read again under the lock: it may have changed
    others = select(func.count()).where(
        behaviors.c.deployment_id == behavior.deployment_id, behaviors.c.id != behavior_id
    )
    if behavior.is_default and session.execute(others).scalar_one():
        raise DefaultBehavior
    session.execute(delete(behaviors).where(behaviors.c.id == behavior_id))
    _record(session, actor, "behavior.removed", behavior_id, organization_id)


def _values(draft: BehaviorDraft) -> dict[str, Any]:
    return {
        "name": require_name(draft.name),
        "kind": draft.kind,
        "description": _require_text("description", draft.description),
        **_how_it_works(draft),
        "tags": _texts("tags", draft.tags),
        "examples": _texts("examples", draft.examples),
        "input_modes": _texts("inputModes", draft.input_modes),
        "output_modes": _texts("outputModes", draft.output_modes),
        "extensions": [stored_extension(extension) for extension in _extensions(draft.extensions)],
    }


def _how_it_works(draft: BehaviorDraft) -> dict[str, Any]:
    if draft.kind is BehaviorKind.MODEL:
        if not draft.model:
            raise _wrong("model", "is required for a model behavior")
        if draft.script is not None:
            raise _wrong("script", "must not be set for a model behavior")
        return {"model": draft.model, "instructions": draft.instructions, "script": None}
    if draft.kind is BehaviorKind.REMOTE:
        raise _wrong(
            "kind", "must not be remote: set an endpoint of the deployment, which creates that behavior"
        )
    if draft.model is not None:
        raise _wrong("model", "must not be set for a script behavior")
    if draft.script is not None:
        _check_script(draft.script)
    return {"model": None, "instructions": draft.instructions, "script": draft.script}


def _check_script(script: str) -> None:
    try:
        script_of(script)
    except ScriptInvalid as invalid:
        raise ValidationFailed(
            errors=[
                FieldError(location="body", name="script", message=problem) for problem in invalid.problems
            ]
        ) from invalid


def _extensions(declared: Sequence[DeclaredExtension]) -> Sequence[DeclaredExtension]:
    uris = [extension.uri for extension in declared]
    if len(uris) > EXTENSIONS_LIMIT or len(set(uris)) < len(uris):
        raise _wrong("extensions", f"must have at most {EXTENSIONS_LIMIT} items, each URI once")
    for uri in uris + [needed for extension in declared for needed in extension.requires]:
        if (
            not 1 <= len(uri) <= _URI_CHARACTERS
            or not uri.isascii()
            or not uri.isprintable()
            # The header `A2A-Extensions` separates URIs by commas and spaces.
            or set(uri) & {",", " "}
        ):
            raise _wrong(
                "extensions", "must have URIs of printable ASCII characters without spaces and commas"
            )
    return declared


def stored_extension(extension: DeclaredExtension) -> Mapping[str, Any]:
    """Return an extension in the form of the column `extensions`."""
    return {
        "uri": extension.uri,
        "description": extension.description,
        "required": extension.required,
        "params": dict(extension.params) if extension.params is not None else None,
        "requires": list(extension.requires),
    }


def _require_text(name: str, value: str) -> str:
    # Postgres cannot store NUL in a text.
    if not value.strip() or "\x00" in value:
        raise _wrong(name, "must not be empty")
    return value


def _texts(name: str, values: Sequence[str]) -> list[str]:
    if len(values) > _TEXTS_LIMIT or any(not value or "\x00" in value for value in values):
        raise _wrong(name, f"must have at most {_TEXTS_LIMIT} texts, none of them empty")
    return list(values)


def _authorized(
    session: Session, actor: Actor, permission: Permission, behavior_id: UUID
) -> tuple[BehaviorSettings, UUID]:
    behavior = _get(session, behavior_id)
    return behavior, authorize_for_deployment(session, actor, permission, behavior.deployment_id)


def _get(session: Session, behavior_id: UUID) -> BehaviorSettings:
    return get_one(session, select(behaviors).where(behaviors.c.id == behavior_id), behavior_settings)


def lock_deployment(session: Session, deployment_id: UUID) -> None:
    """Lock a deployment, so that changes of its behaviors are serialized."""
    held = select(deployments.c.id).where(deployments.c.id == deployment_id)
    # FOR NO KEY UPDATE and not FOR UPDATE, so that other transactions can insert rows that refer to the deployment.
    session.execute(held.with_for_update(key_share=True))


def require_free_name(session: Session, deployment_id: UUID, name: str, own_id: UUID | None) -> None:
    """Raise BehaviorNameTaken if another behavior of the deployment has this name."""
    taken = select(behaviors.c.id).where(behaviors.c.deployment_id == deployment_id, behaviors.c.name == name)
    if own_id is not None:
        taken = taken.where(behaviors.c.id != own_id)
    if session.execute(taken).first() is not None:
        raise BehaviorNameTaken


def unset_default(session: Session, deployment_id: UUID) -> None:
    """Clear the default of a deployment. The caller must set another default."""
    held = update(behaviors).where(behaviors.c.deployment_id == deployment_id, behaviors.c.is_default)
    session.execute(held.values(is_default=False, updated_at=func.now()))


def _require_own(behavior: BehaviorSettings) -> None:
    if behavior.kind is BehaviorKind.REMOTE:
        raise BehaviorOfEndpoint


def _record(session: Session, actor: Actor, action: str, behavior_id: UUID, organization_id: UUID) -> None:
    record(session, actor, action, behavior_id, organization_id=organization_id)


def _wrong(name: str, message: str) -> ValidationFailed:
    return ValidationFailed(errors=[FieldError(location="body", name=name, message=message)])
