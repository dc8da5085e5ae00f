"""Administer the behaviors of deployments."""

from uuid import UUID

from shared.a2a.behaviors import administration as domain
from shared.a2a.exact_json import NUMBERS
from web.a2a import behavior_schemas as schemas
from web.framework.administration import AdministrationRoutes, created
from web.framework.calls import JsonResponse, RequestContext

routes = AdministrationRoutes("behaviors")


@routes.creates(
    "/deployments/<id:deployment_id>/behaviors",
    schemas.NewBehavior,
    schemas.BehaviorBody,
    domain.BehaviorNameTaken,
    summary="Create a behavior of a deployment's agent, which appears as a skill on its card",
)
def create_behavior(call: RequestContext, deployment_id: UUID) -> JsonResponse:
    body: schemas.NewBehavior = call.read_body(**NUMBERS)
    actor = call.actor
    with call.services.database.autocommit() as session:
        # Authorize before checking the draft: a script may take long to parse, and only managers may cause
        # that work.
        domain.authorize_drafting(session, actor=actor, deployment_id=deployment_id)
    # Check outside any transaction: a transaction would hold a database connection meanwhile.
    draft = domain.check_draft(body.draft())
    with call.services.database.transaction() as session:
        made = domain.create_behavior(
            session, actor=actor, deployment_id=deployment_id, draft=draft, is_default=body.is_default
        )
    return created(call, schemas.BehaviorBody.of(made), f"/behaviors/{made.id}")


routes.lists(
    "/deployments/<id:deployment_id>/behaviors",
    domain.list_behaviors,
    schemas.BehaviorPage,
    summary="List the behaviors of a deployment's agent",
)
behavior = routes.resource("/behaviors/<id:behavior_id>", schemas.BehaviorBody)
behavior.reads("read_behavior", domain.get_behavior, summary="Get a behavior with its instructions or script")


@routes.changes(
    "PUT",
    "/behaviors/<id:behavior_id>",
    schemas.ChangedBehavior,
    schemas.BehaviorBody,
    domain.BehaviorNameTaken,
    domain.BehaviorOfEndpoint,
    summary="Replace a behavior; omitted fields are cleared",
)
def replace_behavior(call: RequestContext, behavior_id: UUID) -> JsonResponse:
    body: schemas.ChangedBehavior = call.read_body(**NUMBERS)
    actor = call.actor
    with call.services.database.autocommit() as session:
        domain.authorize_changing(session, actor=actor, behavior_id=behavior_id)
    draft = domain.check_draft(body.draft())
    with call.services.database.transaction() as session:
        changed = domain.replace_behavior(session, actor=actor, behavior_id=behavior_id, draft=draft)
    return JsonResponse(body=schemas.BehaviorBody.of(changed))


behavior.acts(
    "make-default",
    domain.make_default_behavior,
    summary="Set the default behavior, used for messages that name no other",
)
behavior.removes(
    domain.remove_behavior,
    # Refuse to delete the default while other behaviors exist: a message that names no behavior needs the
    # default.
    domain.DefaultBehavior,
    domain.BehaviorOfEndpoint,
    summary="Delete a behavior of a deployment's agent; the default can only be deleted last",
)
