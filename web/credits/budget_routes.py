"""Routes of budgets, routes of the models that a key may call, and `GET /v1/key`."""

from uuid import UUID

from shared.credits import key_usage
from shared.credits.errors import BillingOrganizationRequired
from shared.credits.spending_limits import budgets, key_model_allowlist
from shared.credits.spending_limits.budgets import NewBudget, Period, SubjectKind, TooManyLimits, Unit
from shared.errors import PermissionDenied, ServiceUnavailable
from shared.identity.errors import AlreadyExists
from web.credits import budget_schemas as schemas
from web.framework.administration import ORGANIZATION, AdministrationRoutes, created
from web.framework.authentication import Authentication
from web.framework.calls import JsonResponse, RequestContext
from web.framework.routes import Routes

BUDGETS = f"{ORGANIZATION}/budgets"
BUDGET = f"{BUDGETS}/<id:budget_id>"
KEY_MODELS = f"{ORGANIZATION}/api-keys/<id:key_id>/models"
routes = Routes("credits")
administration = AdministrationRoutes("budgets")
ROUTES = (routes, administration)


@routes.route(
    "GET",
    "/v1/key",
    summary="Get the spending of the caller's own key, what it has left, and the models that it may call",
    authentication=Authentication.CALLER,
    responses={200: schemas.KeyBody},
    errors=(BillingOrganizationRequired, PermissionDenied, ServiceUnavailable),
)
def read_own_key(call: RequestContext) -> JsonResponse:
    with call.services.database.transaction() as session:
        report = key_usage.report_key(session, call.caller)
    return JsonResponse(body=schemas.KeyBody.of(report))


@administration.creates(
    BUDGETS,
    schemas.NewBudgetBody,
    schemas.BudgetBody,
    AlreadyExists,
    TooManyLimits,
    summary="Create a budget of a key, user, identity or deployment; for owners",
    description="It counts calls that are accepted from now on, against every budget that covers them.",
)
def create_budget(call: RequestContext, organization_id: UUID) -> JsonResponse:
    body: schemas.NewBudgetBody = call.read_body()
    actor = call.actor
    new = NewBudget(
        subject_kind=SubjectKind(body.subject_kind),
        subject_id=body.subject_id,
        unit=Unit(body.unit),
        period=Period(body.period),
        amount=body.amount,
        model=body.model,
    )
    with call.services.database.transaction() as session:
        made = budgets.create_budget(session, actor=actor, organization_id=organization_id, new=new)
    return created(call, schemas.BudgetBody.of(made), f"/organizations/{organization_id}/budgets/{made.id}")


administration.lists(
    BUDGETS,
    budgets.list_budgets,
    schemas.BudgetPage,
    summary="List an organization's budgets; without credit.read only the user's own and those of own keys",
)
budget = administration.resource(BUDGET, schemas.BudgetBody)
budget.reads("read_budget", budgets.get_budget, summary="Get a budget")
budget.removes(
    budgets.delete_budget,
    summary="Delete a budget; for owners",
    description="Calls that it has already counted continue.",
)


@administration.changes(
    "PATCH",
    BUDGET,
    schemas.ChangedBudget,
    schemas.BudgetBody,
    summary="Update a budget's amount; for owners",
    description="Credits spent or held in the current period are kept.",
)
def change_budget(call: RequestContext, organization_id: UUID, budget_id: UUID) -> JsonResponse:
    body: schemas.ChangedBudget = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        changed = budgets.change_budget(
            session, actor=actor, organization_id=organization_id, budget_id=budget_id, amount=body.amount
        )
    return JsonResponse(body=schemas.BudgetBody.of(changed))


@administration.changes(
    "PUT",
    KEY_MODELS,
    schemas.KeyModels,
    schemas.KeyModelsBody,
    TooManyLimits,
    summary="Set the list of models that a key may call; for owners",
)
def put_key_models(call: RequestContext, organization_id: UUID, key_id: UUID) -> JsonResponse:
    body: schemas.KeyModels = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        models = key_model_allowlist.set_key_models(
            session, actor=actor, organization_id=organization_id, key_id=key_id, models=tuple(body.models)
        )
    return JsonResponse(body=schemas.KeyModelsBody(models=models))


@administration.administers(
    "GET",
    KEY_MODELS,
    {200: schemas.KeyModelsBody},
    # Respond 404 and not with an empty list: an empty list would mean that the key may call no model.
    summary="Get the models that a key may call; 404 if it may call all",
)
def read_key_models(call: RequestContext, organization_id: UUID, key_id: UUID) -> JsonResponse:
    actor = call.actor
    with call.services.database.transaction() as session:
        models = key_model_allowlist.get_key_models(
            session, actor=actor, organization_id=organization_id, key_id=key_id
        )
    return JsonResponse(body=schemas.KeyModelsBody(models=models))


administration.resource(KEY_MODELS, schemas.KeyModelsBody).removes(
    key_model_allowlist.remove_key_models,
    summary="Remove a key's list of models, so that it may call all; for owners",
)
