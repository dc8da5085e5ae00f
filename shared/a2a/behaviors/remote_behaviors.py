"""Create and delete the remote behavior of a deployment, together with the deployment's endpoint."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Select, delete, func, insert, select, update

from shared.a2a.behaviors.administration import (
    lock_deployment,
    require_free_name,
    stored_extension,
    unset_default,
)
from shared.a2a.tables import behaviors
from shared.a2a.updates import BehaviorKind, DeclaredExtension
from shared.db.database import Session
from shared.ids import new_id

NAME = "Remote agent"
DESCRIPTION = "Answers on a server of its own."
EVERYTHING = ("*/*",)
"""The remote agent itself checks which media types it accepts."""
_table = behaviors.c


def install_remote_behavior(session: Session, deployment_id: UUID) -> None:
    """Create the behavior and make it the default, unless it exists. Raises BehaviorNameTaken."""
    lock_deployment(session, deployment_id)
    if session.execute(_of(deployment_id)).first() is not None:
        return
    # A behavior of an administrator may already have the name, so check it.
    require_free_name(session, deployment_id, NAME, None)
    unset_default(session, deployment_id)
    session.execute(
        insert(behaviors).values(
            id=new_id(),
            deployment_id=deployment_id,
            name=NAME,
            kind=BehaviorKind.REMOTE,
            description=DESCRIPTION,
            input_modes=EVERYTHING,
            output_modes=EVERYTHING,
            is_default=True,
        )
    )


def describe_remote_behavior(
    session: Session, deployment_id: UUID, *, description: str, extensions: Sequence[DeclaredExtension]
) -> None:
    """Set the behavior's description and extensions to those of the agent's card."""
    session.execute(
        update(behaviors)
        .where(_table.deployment_id == deployment_id, _table.kind == BehaviorKind.REMOTE)
        .values(
            description=description,
            extensions=[stored_extension(extension) for extension in extensions],
            updated_at=func.now(),
        )
    )


def remove_remote_behavior(session: Session, deployment_id: UUID) -> None:
    """Delete the behavior. If it was the default, the oldest remaining one becomes the default."""
    lock_deployment(session, deployment_id)
    session.execute(
        delete(behaviors).where(_table.deployment_id == deployment_id, _table.kind == BehaviorKind.REMOTE)
    )
    of_deployment = _table.deployment_id == deployment_id
    has_default = select(_table.id).where(of_deployment, _table.is_default)
    # A deployment with behaviors always has a default, which answers messages that name no skill.
    if session.execute(has_default).first() is None:
        oldest = select(_table.id).where(of_deployment).order_by(_table.id).limit(1).scalar_subquery()
        session.execute(
            update(behaviors).where(_table.id == oldest).values(is_default=True, updated_at=func.now())
        )


def _of(deployment_id: UUID) -> Select[tuple[UUID]]:
    return select(_table.id).where(_table.deployment_id == deployment_id, _table.kind == BehaviorKind.REMOTE)
