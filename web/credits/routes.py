"""Routes of credits: an organization's own reports below `/v1`, and the administration of credits below `/admin`."""

from collections.abc import Callable
from uuid import UUID

from flask import Response

from shared.credits import authorization, balances, holds, ledger, policies
from shared.credits.errors import BalanceOutOfRange, BillingOrganizationRequired, ReferenceConflict
from shared.credits.storage_billing import storage_reports
from shared.credits.usage import usage_records as records
from shared.credits.usage import usage_reports
from shared.errors import PermissionDenied, ServiceUnavailable, ValidationFailed
from shared.identity.access.permissions import Permission
from shared.identity.errors import ResourceNotFound
from web.credits import payments, schemas, statements, storage_schemas, usage_schemas
from web.credits.csv_files import FILE_HEADERS, VARIES, csv_file, json_or_file
from web.credits.usage_csv import render_records, render_usage
from web.framework.administration import ORGANIZATION, AdministrationRoutes
from web.framework.authentication import Authentication
from web.framework.calls import JsonResponse, RequestContext
from web.framework.routes import Routes
from web.http.negotiation import CSV, JSON, negotiate

routes = Routes("credits")
administration = AdministrationRoutes("credit administration")
ROUTES = (routes, administration, statements.routes, payments.routes)

_REFUSED = (BillingOrganizationRequired, PermissionDenied, ServiceUnavailable)
# The status tells whether the entry is new (201) or the request was repeated (200).
_ENTRY_RESPONSES = {201: schemas.EnteredBody, 200: schemas.EnteredBody}
_ENTRY_ERRORS = (
    PermissionDenied,
    ResourceNotFound,
    ServiceUnavailable,
    ReferenceConflict,
    BalanceOutOfRange,
)


@routes.route(
    "GET",
    "/v1/credits",
    summary="Get the organization's credits; requires credit.read",
    authentication=Authentication.CALLER,
    responses={200: schemas.CreditsBody},
    errors=_REFUSED,
)
def read_credits(call: RequestContext) -> JsonResponse:
    organization_id = authorization.authorize_reading(call.caller, Permission.CREDIT_READ)
    with call.services.database.autocommit() as session:
        balance = balances.get_balance(session, organization_id)
    return JsonResponse(body=schemas.CreditsBody.of(balance))


@routes.route(
    "GET",
    "/v1/usage",
    summary="Get the organization's usage by any of its dimensions; without usage.read only the user's own",
    description=(
        "Sums of a window, or of the time from `from` to `to`, exact to the last settled call: by one or more "
        "dimensions (`group_by=model,principal`), by hour or day (`interval`), of the calls that match the filters. "
        "With `Accept: text/csv` the response is a CSV file."
    ),
    authentication=Authentication.CALLER,
    query=usage_schemas.UsageQuery,
    responses={200: json_or_file(usage_schemas.UsageBody)},
    response_headers=FILE_HEADERS,
    errors=(*_REFUSED, ValidationFailed),
)
def read_usage(call: RequestContext) -> JsonResponse | Response:
    # Authorize before the query is used: the scope decides whose usage the report covers.
    scope = authorization.authorize_usage(call.caller)
    query: usage_schemas.UsageQuery = call.query
    with call.services.database.autocommit() as session:
        report = usage_reports.scoped_usage(session, scope, query.criteria)
    if negotiate(call.http, (JSON, CSV)) == CSV:
        return csv_file("usage", render_usage(report))
    return JsonResponse(body=usage_schemas.UsageBody.of(report), headers=VARIES)


@routes.route(
    "GET",
    "/v1/usage/records",
    summary="List the organization's usage records, newest first; without usage.read only the user's own",
    description=(
        "With `Accept: text/csv` the response is a CSV file of all records that match the filters; `cursor` and "
        f"`limit` are ignored. A file of more than {records.MAX_FILE_RECORDS} records is refused."
    ),
    authentication=Authentication.CALLER,
    query=usage_schemas.UsageRecordsQuery,
    responses={200: json_or_file(schemas.UsageRecordPage)},
    response_headers=FILE_HEADERS,
    errors=(*_REFUSED, ValidationFailed),
)
def list_usage_records(call: RequestContext) -> JsonResponse | Response:
    scope = authorization.authorize_usage(call.caller)
    query: usage_schemas.UsageRecordsQuery = call.query
    with call.services.database.transaction() as session:
        if negotiate(call.http, (JSON, CSV)) == CSV:
            found = records.list_all_usage_records(session, scope, query.wanted)
            # Return the whole list and not a page: a file has no next page.
            return csv_file("usage-records", render_records(found))
        page = records.list_usage_records(
            session,
            scope.organization_id,
            user_id=scope.user_id,
            wanted=query.wanted,
            cursor=query.cursor,
            limit=query.limit,
        )
    return JsonResponse(body=schemas.UsageRecordPage.of(page), headers=VARIES)


@routes.route(
    "GET",
    "/v1/usage/storage",
    summary="Get the organization's storage usage and its cost by day; requires usage.read",
    description=(
        "With `group_by` also by purpose, owner (an identity) and distribution; the costs add up to the amount "
        "charged; with `month` for the days of a calendar month."
    ),
    authentication=Authentication.CALLER,
    query=storage_schemas.StorageQuery,
    responses={200: storage_schemas.StorageUsageBody},
    errors=(*_REFUSED, ValidationFailed),
)
def read_storage_usage(call: RequestContext) -> JsonResponse:
    organization_id = authorization.authorize_reading(call.caller, Permission.USAGE_READ)
    query: storage_schemas.StorageQuery = call.query
    with call.services.database.autocommit() as session:
        report = storage_reports.storage_usage(session, organization_id, query.criteria)
    return JsonResponse(body=storage_schemas.StorageUsageBody.of(report))


organization_credits = administration.resource(f"{ORGANIZATION}/credits", schemas.OrganizationCredits)
organization_credits.reads(
    "read_organization_credits", balances.read_balance, summary="Get an organization's credits and policy"
)


@administration.pages(
    "/organizations/<id:organization_id>/storage-usage",
    storage_schemas.OrganizationStorage,
    storage_schemas.OrganizationStorageQuery,
    summary="Get an organization's storage usage and its cost by day",
)
def read_organization_storage(call: RequestContext, organization_id: UUID) -> JsonResponse:
    actor = call.actor
    query: storage_schemas.OrganizationStorageQuery = call.query
    with call.services.database.transaction() as session:
        report = storage_reports.read_storage_usage(
            session, actor=actor, organization_id=organization_id, criteria=query.criteria
        )
    return JsonResponse(body=storage_schemas.OrganizationStorage.of(report))


@administration.pages(
    "/organizations/<id:organization_id>/credits/entries",
    schemas.EntryPage,
    schemas.EntryQuery,
    summary="List the entries of an organization's ledger, newest first",
)
def list_credit_entries(call: RequestContext, organization_id: UUID) -> JsonResponse:
    actor = call.actor
    query: schemas.EntryQuery = call.query
    with call.services.database.transaction() as session:
        page = ledger.list_entries(
            session, actor=actor, organization_id=organization_id, cursor=query.cursor, limit=query.limit
        )
    return JsonResponse(body=schemas.EntryPage.of(page))


administration.lists(
    f"{ORGANIZATION}/credits/holds",
    holds.list_holds,
    schemas.HoldPage,
    summary="List an organization's open holds, newest first",
    description="Credits reserved by calls in progress. Their sum is `held` of the organization's credits.",
)


@administration.route(
    "POST",
    "/admin/organizations/<id:organization_id>/credits/top-ups",
    summary="Add credits to an organization, once for each reference; for operators",
    description="201 for the first request, 200 for a repeated one, which adds nothing.",
    authentication=Authentication.CALLER,
    body=schemas.NewTopUp,
    responses=_ENTRY_RESPONSES,
    errors=_ENTRY_ERRORS,
)
def top_up_credits(call: RequestContext, organization_id: UUID) -> JsonResponse:
    return _enter(call, ledger.top_up, organization_id)


@administration.route(
    "POST",
    "/admin/organizations/<id:organization_id>/credits/adjustments",
    summary="Create an entry that corrects a mistake, positive or negative, once for each reference; for operators",
    description="201 for the first request, 200 for a repeated one, which changes nothing. It may leave a debt.",
    authentication=Authentication.CALLER,
    body=schemas.NewAdjustment,
    responses=_ENTRY_RESPONSES,
    errors=_ENTRY_ERRORS,
)
def adjust_credits(call: RequestContext, organization_id: UUID) -> JsonResponse:
    return _enter(call, ledger.adjust, organization_id)


def _enter(call: RequestContext, act: Callable[..., ledger.Entered], organization_id: UUID) -> JsonResponse:
    body: schemas.NewTopUp | schemas.NewAdjustment = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        entered = act(
            session,
            organization_id=organization_id,
            amount=body.amount,
            reference=body.reference,
            actor=actor,
        )
    return JsonResponse(body=schemas.EnteredBody.entered(entered), status=200 if entered.is_replayed else 201)


@administration.changes(
    "PUT",
    "/organizations/<id:organization_id>/credit-policy",
    schemas.NewPolicy,
    schemas.OrganizationCredits,
    summary="Replace an organization's credit policy; for owners",
    description=(
        "Owners set the spending limit. Only operators change the overdraft, and end their own suspension."
    ),
)
def set_credit_policy(call: RequestContext, organization_id: UUID) -> JsonResponse:
    body: schemas.NewPolicy = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        balance = policies.set_policy(
            session,
            organization_id=organization_id,
            policy=balances.Policy(body.policy),
            overdraft=body.overdraft,
            spending_limit=body.spending_limit,
            actor=actor,
        )
    return JsonResponse(body=schemas.OrganizationCredits.of(balance))


organization_credits.acts(
    "suspend",
    policies.suspend_spending,
    summary="Suspend an organization's spending; for owners and operators",
    description="No call starts while it is suspended. Running calls finish and are charged. Reading and storage "
    "continue.",
)
organization_credits.acts(
    "resume",
    policies.resume_spending,
    summary="Resume an organization's spending; for owners and operators",
    description="Ends the suspension by the caller's own side only: an owner cannot end an operator's, nor "
    "an operator the owner's.",
)
