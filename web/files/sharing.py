"""Routes that share versions by links, revoke links, and download content (docs/specification/files.md#grants)."""

from collections.abc import Sequence
from functools import partial
from uuid import UUID

from flask import Response
from werkzeug.datastructures import Headers

from shared.errors import DomainError, FieldError, ValidationFailed
from shared.fairness.admission import PoolKey
from shared.files import errors, grants
from shared.files.blobs.base import BlobDamaged, BlobMissing, BlobStoreUnavailable
from shared.files.blobs.chunks import CHECKED_CHUNK_BYTES
from shared.files.content import authorize_reading, find_chunk_checksums, get_content, refuse_unreadable
from shared.files.maintenance.scrubbing import report_damage
from shared.files.resources import Content
from shared.identity.authentication.revocation_watcher import Permit
from shared.observability.telemetry import BLOBS_MISSING, get_logger
from web.error_responses.status_codes import answer_domain_error
from web.files import schemas
from web.files.content_response import content_response
from web.files.presentation import (
    CORS_MAX_AGE_SECONDS,
    CORS_METHODS,
    CORS_REQUEST_HEADERS,
    DESCRIBED,
    Presentation,
    allow_any_page,
)
from web.files.ranges import CONDITIONS, RangeNotSatisfiable
from web.files.responses import ENDED, FOUND, actor_of, content_url
from web.framework.authentication import Authentication, limit_failed_authentication
from web.framework.calls import JsonResponse, RequestContext
from web.framework.revocation import Watch, abort_when_revoked
from web.framework.routes import Routes
from web.http.requests import DuplicateParameter, MalformedRequest
from web.http.wsgi_middleware import GRANTS

log = get_logger(__name__)

_ONLY_WITH_A_GRANT = FieldError(
    location="query", name="disposition", message="can be chosen only with a read grant"
)

routes = Routes("files")


@routes.route(
    "POST",
    "/files/<id:file_id>/versions/<id:version_id>/grants",
    summary="Create a read grant for an exact version; its URL needs no other credential",
    authentication=Authentication.CALLER,
    query=schemas.GrantQuery,
    responses={201: schemas.GrantBody},
    errors=(*FOUND, errors.VersionNotFound, *ENDED, MalformedRequest, ValidationFailed),
)
def create_grant(call: RequestContext, file_id: UUID, version_id: UUID) -> JsonResponse:
    if call.http.content_length or "Transfer-Encoding" in call.http.headers:
        # Refuse a body: a client that sends ttlSeconds in a body would believe that the service has read it.
        raise MalformedRequest("This operation takes no body; `ttlSeconds` is a query parameter.")
    grant = grants.create_grant(
        call.services.database, actor_of(call), file_id, version_id, call.query.ttl_seconds
    )
    body = schemas.GrantBody.of(grant, f"{content_url(call, file_id)}?grant={grant.token}")
    return JsonResponse(body=body, status=201, headers={"Cache-Control": "no-store"})


@routes.route(
    "GET",
    "/files/<id:file_id>/grants",
    summary="List the read grants of a file, newest first, without their URLs",
    authentication=Authentication.CALLER,
    query=schemas.GrantListQuery,
    responses={200: schemas.GrantPage},
    errors=(*FOUND, ValidationFailed),
)
def list_grants(call: RequestContext, file_id: UUID) -> JsonResponse:
    with call.services.database.autocommit() as session:
        page = grants.list_grants(
            session,
            actor=actor_of(call),
            file_id=file_id,
            cursor=None if call.query.cursor is None else str(call.query.cursor),
            limit=call.query.limit,
        )
    listed = [schemas.ListedGrantBody.of(grant) for grant in page.items]
    next_cursor = None if page.next_cursor is None else UUID(page.next_cursor)
    return JsonResponse(body=schemas.GrantPage(grants=listed, next_cursor=next_cursor))


@routes.route(
    "DELETE",
    "/files/<id:file_id>/grants/<id:grant_id>",
    summary="Revoke a read grant: from now on its URL returns 410",
    authentication=Authentication.CALLER,
    responses={200: schemas.ListedGrantBody},
    errors=(*FOUND, errors.GrantNotFound),
)
def revoke_grant(call: RequestContext, file_id: UUID, grant_id: UUID) -> JsonResponse:
    with call.services.database.transaction() as session:
        revoked = grants.revoke_grant(session, actor=actor_of(call), file_id=file_id, grant_id=grant_id)
    return JsonResponse(body=schemas.ListedGrantBody.of(revoked))


@routes.route(
    "GET",
    "/files/<id:file_id>/content",
    summary="Download exact content, by a read grant or with credentials",
    description=(
        "A grant names its version; with credentials it is the current one unless `versionId` says "
        "otherwise. Takes ranges and conditions (RFC 9110). What a grant opens may be embedded in "
        "any page."
    ),
    authentication=Authentication.GRANT_OR_CALLER,
    query=schemas.ContentQuery,
    headers=CONDITIONS,
    responses={
        200: dict.fromkeys(("application/octet-stream", "*/*")),
        206: dict.fromkeys(("application/octet-stream", "multipart/byteranges", "*/*")),
        304: None,
    },
    response_headers=DESCRIBED,
    errors=(
        *FOUND,
        *ENDED,
        errors.VersionNotFound,
        errors.GrantNotFound,
        errors.GrantExpired,
        errors.FilePending,
        errors.VersionMismatch,
        ValidationFailed,
        RangeNotSatisfiable,
        BlobMissing,
        BlobDamaged,
        BlobStoreUnavailable,
    ),
)
def download_content(call: RequestContext, file_id: UUID) -> Response:
    if not call.http.environ.get(GRANTS):
        if call.query.disposition is not None:
            raise ValidationFailed(errors=[_ONLY_WITH_A_GRANT])
        return send_content(call, file_id, Presentation.PRIVATE)
    is_inline = call.query.disposition == "inline"
    try:
        return send_content(call, file_id, Presentation.SHARED_INLINE if is_inline else Presentation.SHARED)
    except DomainError as error:
        response = answer_domain_error(error)
        allow_any_page(response.headers)
        return response


@routes.route(
    "OPTIONS",
    "/files/<id:file_id>/content",
    summary="Get the CORS headers of a shared link",
    description=(
        "Which headers it may send is the same for all links, whether they work or not; without a "
        "link pages of other origins get nothing."
    ),
    authentication=Authentication.PREFLIGHT,
    query=schemas.ContentQuery,
    responses={204: None},
    response_headers={"Allow": "The methods of this URL."},
    errors=(ValidationFailed,),
)
def ask_before_download(call: RequestContext, file_id: UUID) -> JsonResponse:  # noqa: ARG001 (the same for every file)
    headers = Headers({"Allow": CORS_METHODS})
    if call.http.environ.get(GRANTS):
        allow_any_page(headers)
        headers["Access-Control-Allow-Methods"] = CORS_METHODS
        headers["Access-Control-Allow-Headers"] = CORS_REQUEST_HEADERS
        headers["Access-Control-Max-Age"] = str(CORS_MAX_AGE_SECONDS)
    return JsonResponse(status=204, headers=dict(headers))


def send_content(call: RequestContext, file_id: UUID, presentation: Presentation) -> Response:
    """Return the response with the content that the caller, or the grant, may read."""
    services = call.services
    content = _get_content(call, file_id)
    refuse_unreadable(content, services.blobs)
    if not call.has_credential:
        # The organization of an anonymous client is known only now. The download takes a slot of the file's
        # organization.
        call.admission.move(PoolKey(content.organization_id, file_id))
    call.admission.hold(services.pools.downloads)
    # Find the checksums before opening the content: after a database error, the content would stay open.
    checksums = _find_checksums(call, content)
    try:
        response = content_response(
            call.http.environ,
            content.version,
            services.blobs.open(content.version.id, placed=content.is_placed),
            presentation=presentation,
            proxy_prefix=services.settings.x_accel_prefix,
            checksums=checksums,
            report_damage=partial(report_damage, services.database, content.version.id),
            recent=services.recent_checks,
        )
    except BlobMissing:
        # The file may have ended after its row was read. If so, this call raises the error that says so.
        _get_content(call, file_id)
        BLOBS_MISSING.inc()
        log.warning("blob.missing", version_id=content.version.id)
        raise
    connection = call.http.environ.get("gunicorn.socket")
    return abort_when_revoked(response, _watch(call, content), connection)


def _watch(call: RequestContext, content: Content) -> Watch:
    """Return a watch for the time that content is sent.

    The watch checks the caller's right to read the content, or whether the grant was revoked.
    """
    if call.has_credential:
        return call.watch(partial(authorize_reading, content))
    services, token = call.services, _one_grant(call.http.environ[GRANTS])
    permit = Permit(key=token, current=partial(grants.require_unrevoked, services.database, token))
    return partial(services.running.watch_permit, permit, lambda _: None)


def _find_checksums(call: RequestContext, content: Content) -> bytes | None:
    services = call.services
    is_sent_by_proxy = services.settings.x_accel_prefix is not None and content.is_placed
    if services.blobs.verifies_itself or is_sent_by_proxy or content.version.byte_size <= CHECKED_CHUNK_BYTES:
        return None
    with services.database.autocommit() as session:
        return find_chunk_checksums(session, content.version.id)


def _get_content(call: RequestContext, file_id: UUID) -> Content:
    sent_grants = call.http.environ.get(GRANTS)
    try:
        with call.services.database.autocommit() as session:
            if sent_grants:
                content = grants.get_granted_content(session, file_id, _one_grant(sent_grants))
                # The grant names the version. A query may repeat this version, but not choose another.
                if call.query.version_id not in (None, content.version.id):
                    raise errors.GrantNotFound
                return content
            return get_content(session, call.caller, file_id, call.query.version_id)
    except errors.GrantNotFound:
        limit_failed_authentication(call.http, call.services)
        raise


def _one_grant(sent: Sequence[str]) -> str:
    """Return the one grant of a request. Raises DuplicateParameter if there are several."""
    if len(sent) > 1:
        raise DuplicateParameter(
            errors=[FieldError(location="query", name="grant", message="was sent more than once")]
        )
    return sent[0]
