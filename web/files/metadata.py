"""Routes that list, read, renew and delete files, and list the versions of a file.

docs/specification/files.md#metadata specifies these routes.
"""

from uuid import UUID

from shared.errors import PermissionDenied, ServiceUnavailable, ValidationFailed
from shared.files import access, deletion, errors, listing, retention
from shared.identity.access.permissions import Permission
from web.files import schemas
from web.files.responses import ENDED, FOUND, actor_of, file_body, pending
from web.framework.authentication import Authentication
from web.framework.calls import JsonResponse, RequestContext
from web.framework.routes import Routes
from web.http.requests import FieldRequired, MalformedRequest

routes = Routes("files")


@routes.route(
    "GET",
    "/files",
    summary="List the files of the caller's owner scope, newest first",
    authentication=Authentication.CALLER,
    query=schemas.ListQuery,
    responses={200: schemas.FilePage},
    errors=(PermissionDenied, ValidationFailed, MalformedRequest, ServiceUnavailable),
)
def list_files(call: RequestContext) -> JsonResponse:
    query: schemas.FileListQuery = call.query
    with call.services.database.autocommit() as session:
        page = listing.list_files(
            session,
            call.caller,
            query.file_filter(),
            cursor=query.cursor,
            limit=query.limit,
            pending=pending(call),
        )
    files = [file_body(call.caller, file) for file in page.files]
    return JsonResponse(body=schemas.FilePage(files=files, next_cursor=page.next_cursor))


@routes.route(
    "GET",
    "/files/<id:file_id>",
    summary="Get a file's metadata; also of an expired or deleted file",
    authentication=Authentication.CALLER,
    responses={200: schemas.FileBody},
    errors=FOUND,
)
def read_metadata(call: RequestContext, file_id: UUID) -> JsonResponse:
    with call.services.database.autocommit() as session:
        file = access.get_file(session, call.caller, file_id, Permission.FILE_READ, pending=pending(call))
    return JsonResponse(body=file_body(call.caller, file))


@routes.route(
    "GET",
    "/files/<id:file_id>/versions",
    summary="List a file's versions, newest first",
    authentication=Authentication.CALLER,
    query=schemas.VersionsQuery,
    responses={200: schemas.VersionPage},
    errors=(*FOUND, ValidationFailed, MalformedRequest),
)
def list_versions(call: RequestContext, file_id: UUID) -> JsonResponse:
    query: schemas.VersionsQuery = call.query
    with call.services.database.autocommit() as session:
        file = access.get_file(session, call.caller, file_id, Permission.FILE_READ, pending=pending(call))
        page = access.list_versions(session, file_id, cursor=query.cursor, limit=query.limit)
    described = [
        schemas.VersionBody(
            version_id=version.id,
            revision=version.revision,
            metadata=schemas.Metadata.of(version, file.retention_expires_at),
        )
        for version in page.items
    ]
    shown = {"versions": described, "next_cursor": page.next_cursor}
    return JsonResponse(body=schemas.VersionPage.model_validate(shown))


@routes.route(
    "PUT",
    "/files/<id:file_id>/retention",
    summary="Renew a file's retention: to a later deadline, or to none with null",
    authentication=Authentication.CALLER,
    body=schemas.RetentionBody,
    responses={200: schemas.FileBody},
    errors=(
        *FOUND,
        *ENDED,
        *retention.RENEWAL_ERRORS,
    ),
)
def renew_retention(call: RequestContext, file_id: UUID) -> JsonResponse:
    database = call.services.database
    with database.autocommit() as session:
        # Check before the body is read, so that a caller without rights gets 403 or 404 for any body.
        retention.get_renewable(session, call.caller, file_id, pending=pending(call))
    body: schemas.RetentionBody = call.read_body()
    file = retention.renew(
        database, actor_of(call), file_id, body.retention_expires_at, pending=pending(call)
    )
    return JsonResponse(body=file_body(call.caller, file))


@routes.route(
    "DELETE",
    "/files/<id:file_id>",
    summary="Delete a file and all its versions; its grants end at once",
    authentication=Authentication.CALLER,
    query=schemas.DeleteQuery,
    responses={200: schemas.DeletionBody},
    errors=(
        *FOUND,
        *ENDED,
        errors.FileReferenced,
        errors.OperationConflict,
        errors.OperationInProgress,
        FieldRequired,
        MalformedRequest,
    ),
)
def delete_file(call: RequestContext, file_id: UUID) -> JsonResponse:
    deleted = deletion.delete(call.services.database, actor_of(call), file_id, call.query.operation_id)
    return JsonResponse(body=schemas.DeletionBody.of(deleted))
