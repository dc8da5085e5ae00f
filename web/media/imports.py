"""Routes that read and retry imports.

The distribution that pushed the imports and the users of its organization may use these routes.
"""

from uuid import UUID

from shared.errors import PermissionDenied, ServiceUnavailable, ValidationFailed
from shared.identity.access.authorization import administrator
from shared.identity.directory.distributions import get_distribution
from shared.identity.errors import OrganizationSuspended, ResourceNotFound
from shared.media.errors import ImportNotFound, ImportNotRetryable, TooManyImports
from shared.media.importing import imports, retries
from shared.media.importing.imports import ImportState
from web.framework.authentication import Authentication
from web.framework.calls import JsonResponse, RequestContext, request_id
from web.framework.routes import Routes
from web.media import schemas

routes = Routes("media")

_REFUSED = (PermissionDenied, OrganizationSuspended, ResourceNotFound, ServiceUnavailable)


@routes.route(
    "GET",
    "/distributions/<id:distribution_id>/media/<id:import_id>",
    summary="Get the state of an import",
    description="For the distribution's own token, and for users of its organization.",
    authentication=Authentication.DISTRIBUTION,
    responses={200: schemas.ImportBody},
    errors=(*_REFUSED, ImportNotFound),
)
def read_import(call: RequestContext, distribution_id: UUID, import_id: UUID) -> JsonResponse:
    require_reader(call, distribution_id)
    with call.services.database.autocommit() as session:
        found = imports.get_import(session, distribution_id=distribution_id, import_id=import_id)
    return JsonResponse(body=schemas.ImportBody.of(found))


@routes.route(
    "GET",
    "/distributions/<id:distribution_id>/media",
    summary="List the imports of a distribution, newest first",
    description="For the distribution's own token, and for users of its organization.",
    authentication=Authentication.DISTRIBUTION,
    query=schemas.ImportQuery,
    responses={200: schemas.ImportPage},
    errors=(*_REFUSED, ValidationFailed),
)
def list_imports(call: RequestContext, distribution_id: UUID) -> JsonResponse:
    require_reader(call, distribution_id)
    query: schemas.ImportQuery = call.query
    with call.services.database.autocommit() as session:
        page = imports.list_imports(
            session,
            distribution_id=distribution_id,
            state=None if query.state is None else ImportState(query.state),
            **query.position,
        )
    return JsonResponse(body=schemas.ImportPage.of(page))


@routes.route(
    "POST",
    "/distributions/<id:distribution_id>/media/<id:import_id>/retry",
    summary="Retry an import that failed or is held",
    description="For callers that manage the distribution. The import keeps its id and is fetched as it was pushed.",
    authentication=Authentication.CALLER,
    responses={200: schemas.ImportBody},
    errors=(*_REFUSED, ImportNotFound, ImportNotRetryable, TooManyImports),
)
def retry_import(call: RequestContext, distribution_id: UUID, import_id: UUID) -> JsonResponse:
    actor = call.actor
    with call.services.database.transaction() as session:
        retried = retries.retry_import(
            session, call.services.settings, actor=actor, distribution_id=distribution_id, import_id=import_id
        )
    return JsonResponse(body=schemas.ImportBody.of(retried))


@routes.route(
    "POST",
    "/distributions/<id:distribution_id>/media/retry",
    summary="Retry the imports that failed or are held, up to 500, oldest first",
    description="For callers that manage the distribution.",
    authentication=Authentication.CALLER,
    administers=True,
    body=schemas.RetryRequest,
    responses={200: schemas.RetriedImports},
    errors=(*_REFUSED, ValidationFailed, TooManyImports),
)
def retry_imports(call: RequestContext, distribution_id: UUID) -> JsonResponse:
    request: schemas.RetryRequest = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        count = retries.retry_imports(
            session,
            call.services.settings,
            actor=actor,
            distribution_id=distribution_id,
            state=None if request.state is None else ImportState(request.state),
            code=request.code,
            since=request.since,
        )
    return JsonResponse(body=schemas.RetriedImports(count=count))


def require_reader(call: RequestContext, distribution_id: UUID) -> None:
    """Check that the caller may read the distribution's imports.

    Raises ResourceNotFound, PermissionDenied or OrganizationSuspended.
    """
    distribution = call.credential.distribution
    if distribution is not None:
        # Respond 404 and not 403: a token must not reveal which other distributions exist.
        if distribution.id != distribution_id:
            raise ResourceNotFound
        if distribution.is_suspended:
            raise OrganizationSuspended
        return
    # The credential is not a distribution's token, so `get_distribution` checks the caller's permission.
    caller = call.services.authenticator.resolve(call.credential, None)
    with call.services.database.autocommit() as session:
        get_distribution(session, actor=administrator(caller, request_id()), distribution_id=distribution_id)
