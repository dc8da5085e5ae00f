"""Administer the behaviors of deployments."""

from __future__ import annotations

from uuid import UUID

from shared.a2a.behaviors import administration as domain
from web.a2a import behavior_schemas as schemas
from web.administration import AdministrationRoutes, created
from web.calls import Answer, Call

routes = AdministrationRoutes("behaviors")


@routes.creates(
    "/deployments/<id:deployment_id>/behaviors",
    schemas.NewBehavior,
    schemas.BehaviorBody,
    domain.BehaviorNameTaken,
)
def create_behavior(call: Call, deployment_id: UUID) -> Answer:
    """Create a behavior of a deployment's agent, which its card shows as a skill."""
    by = call.actor
    body: schemas.NewBehavior = call.read_body()
    with call.services.database.autocommit() as session:
        domain.authorize_drafting(session, by=by, deployment_id=deployment_id)
    draft = domain.check_draft(body.draft())
    with call.services.database.transaction() as session:
        made = domain.create_behavior(
            session, by=by, deployment_id=deployment_id, draft=draft, is_default=body.is_default
        )
    return created(call, schemas.BehaviorBody.of(made), f"/behaviors/{made.id}")


@routes.lists("/deployments/<id:deployment_id>/behaviors", schemas.BehaviorPage)
def list_behaviors(call: Call, deployment_id: UUID) -> Answer:
    """List the behaviors of a deployment's agent."""
    by = call.actor
    with call.services.database.transaction() as session:
        page = domain.list_behaviors(session, by=by, deployment_id=deployment_id, **call.query.position)
    return Answer(body=schemas.BehaviorPage.of(page))


@routes.reads("/behaviors/<id:behavior_id>", schemas.BehaviorBody)
def read_behavior(call: Call, behavior_id: UUID) -> Answer:
    """Get a behavior with its instructions or script."""
    by = call.actor
    with call.services.database.transaction() as session:
        found = domain.get_behavior(session, by=by, behavior_id=behavior_id)
    return Answer(body=schemas.BehaviorBody.of(found))


@routes.changes(
    "PUT",
    "/behaviors/<id:behavior_id>",
    schemas.ChangedBehavior,
    schemas.BehaviorBody,
    domain.BehaviorNameTaken,
)
def replace_behavior(call: Call, behavior_id: UUID) -> Answer:
    """Replace a behavior; what is left out is empty from then on."""
    by = call.actor
    body: schemas.ChangedBehavior = call.read_body()
    with call.services.database.autocommit() as session:
        domain.authorize_changing(session, by=by, behavior_id=behavior_id)
    draft = domain.check_draft(body.draft())
    with call.services.database.transaction() as session:
        changed = domain.replace_behavior(session, by=by, behavior_id=behavior_id, draft=draft)
    return Answer(body=schemas.BehaviorBody.of(changed))


@routes.acts("/behaviors/<id:behavior_id>/make-default", schemas.BehaviorBody)
def make_default_behavior(call: Call, behavior_id: UUID) -> Answer:
    """Set the default behavior, which answers messages that ask for no other."""
    by = call.actor
    with call.services.database.transaction() as session:
        changed = domain.make_default_behavior(session, by=by, behavior_id=behavior_id)
    return Answer(body=schemas.BehaviorBody.of(changed))


@routes.removes("/behaviors/<id:behavior_id>", domain.DefaultBehavior)
def remove_behavior(call: Call, behavior_id: UUID) -> Answer:
    """Delete a behavior of a deployment's agent; the default one last."""
    by = call.actor
    with call.services.database.transaction() as session:
        domain.remove_behavior(session, by=by, behavior_id=behavior_id)
    return Answer(status=204)
