"""Routes of upload and replace: receive content, pass it to the domain, respond with the version.

docs/specification/files.md#upload specifies these routes.
"""

from collections.abc import Callable, Mapping
from functools import partial
from uuid import UUID

from flask import Response

from shared.credits.errors import StorageUnpaid
from shared.errors import DomainError, PermissionDenied, ServiceUnavailable, ValidationFailed
from shared.files import errors, replaces, uploads
from shared.files.blobs.base import BlobStoreUnavailable, StorageFull, StorageReadOnly
from shared.files.resources import Receipt, ReceivedContent
from shared.files.staging import Sink
from shared.identity.access.authorization import Actor
from shared.identity.access.callers import Caller
from shared.identity.errors import OwnerRequired, PayerMismatch
from web.files import schemas
from web.files.responses import ENDED, FOUND, actor_of, receipt_answer, time_limit_seconds
from web.files.resumable import (
    BEGINNING_HEADERS,
    DIGEST_HEADER,
    PROGRESS_HEADERS,
    begin_resumable,
    is_resumable,
)
from web.framework.authentication import Authentication
from web.framework.calls import JsonResponse, RequestContext
from web.framework.routes import FilePart, Routes
from web.http.multipart import receive_file_part
from web.http.requests import FieldRequired, MalformedRequest, UnsupportedMediaType

routes = Routes("files")

_BODY: tuple[type[DomainError], ...] = (
    MalformedRequest,
    errors.FilePartRequired,
    errors.ByteSizeMismatch,
    errors.DigestMismatch,
    errors.ContentTooLarge,
    errors.UploadTimeout,
    UnsupportedMediaType,
    BlobStoreUnavailable,
    StorageFull,
    StorageReadOnly,
    errors.OperationConflict,
    errors.OperationInProgress,
    errors.InconsistentUploadLength,
    errors.TooManyUploads,
    StorageUnpaid,
    FieldRequired,
    ValidationFailed,
)


# The operations that a client calls next with an upload's response, with their parameters in the syntax of
# OpenAPI links.
_ID = {"fileId": "$response.body#/id"}
_OF_UPLOADED: Mapping[str, Mapping[str, str]] = {
    "create_grant": _ID | {"versionId": "$response.body#/versionId"},
    "download_content": _ID,
    "replace_content": _ID
    | {"expectedVersionId": "$response.body#/versionId", "expectedRevision": "$response.body#/revision"},
    "renew_retention": _ID,
    "put_reference": _ID,
    "list_references": _ID,
    "list_versions": _ID,
    "read_metadata": _ID,
    "delete_file": _ID,
}


@routes.route(
    "POST",
    "/files/agent-artifacts",
    summary="Upload agent output",
    description=(
        "The new file belongs to the owner of the call: the receiving identity of the attributed "
        "request, else the deployment's daemon. 201 for the first attempt, 200 for a retry, 202 "
        "while the content is still being placed. With `Upload-Complete: ?0`, headers of the file and no body it "
        "begins a resumable upload: 201 with its `Location`."
    ),
    authentication=Authentication.CALLER,
    query=schemas.UploadQuery,
    headers=BEGINNING_HEADERS | DIGEST_HEADER,
    response_headers=PROGRESS_HEADERS,
    body=FilePart(),
    responses={201: schemas.UploadResult, 200: schemas.UploadResult, 202: schemas.PendingUploadResult},
    links=_OF_UPLOADED,
    errors=(OwnerRequired, PermissionDenied, PayerMismatch, ServiceUnavailable, *_BODY),
)
def upload_agent_artifact(call: RequestContext) -> JsonResponse | Response:
    query: schemas.UploadQuery = call.query
    association = None
    if query.association_kind is not None and query.association_id is not None:
        association = uploads.Association(kind=query.association_kind, id=query.association_id)
    request = uploads.UploadRequest(
        operation_id=query.operation_id,
        organization_id=query.organization_id,
        byte_size=query.byte_size,
        retention_expires_at=query.retention_expires_at,
        association=association,
        time_limit_seconds=time_limit_seconds(call, query.byte_size),
    )
    return _write(call, uploads.upload, call.caller, request, first_status=201)


@routes.route(
    "PUT",
    "/files/<id:file_id>",
    summary="Replace the content of agent output",
    description=(
        "Both expectations must match the current version. The file keeps its id, owner and "
        "retention; earlier versions stay readable by their versionId and their grants. "
        "`Upload-Complete: ?0` begins a resumable upload, as for uploads."
    ),
    authentication=Authentication.CALLER,
    query=schemas.ReplaceQuery,
    headers=BEGINNING_HEADERS | DIGEST_HEADER,
    response_headers=PROGRESS_HEADERS,
    body=FilePart(),
    responses={200: schemas.UploadResult, 201: None, 202: schemas.PendingUploadResult},
    errors=(
        *FOUND,
        *ENDED,
        errors.ReplaceNotSupported,
        errors.PreconditionRequired,
        errors.VersionMismatch,
        *_BODY,
    ),
)
def replace_content(call: RequestContext, file_id: UUID) -> JsonResponse | Response:
    query: schemas.ReplaceQuery = call.query
    request = replaces.ReplaceRequest(
        operation_id=query.operation_id,
        file_id=file_id,
        expected_version_id=query.expected_version_id,
        expected_revision=query.expected_revision,
        byte_size=query.byte_size,
        time_limit_seconds=time_limit_seconds(call, query.byte_size),
    )
    return _write(call, replaces.replace, actor_of(call), request, first_status=200)


def _write(
    call: RequestContext,
    write: Callable[..., Receipt],
    actor: Caller | Actor,
    request: uploads.UploadRequest | replaces.ReplaceRequest,
    *,
    first_status: int,
) -> JsonResponse | Response:
    """Store the request's content and respond with the version, or begin a resumable upload."""
    if is_resumable(call.http):
        return begin_resumable(call, request)
    services = call.services
    receipt = write(
        services.database,
        services.blobs,
        actor,
        request,
        partial(_receive, call, request.byte_size),
        revalidate=services.revalidator.revalidate,
    )
    return receipt_answer(call, receipt, first_status=first_status)


def _receive(call: RequestContext, byte_size: int, sink: Sink) -> ReceivedContent:
    """Receive the one part of the request.

    Limit its size, the sender's pace, and the number of concurrent bodies.
    """
    headers = call.http.headers
    # `admit` limits how many bodies are received at once, and how slowly a client may send one.
    with call.services.receptions.admit(call.http.environ) as body:
        return receive_file_part(
            body,
            headers.get("Content-Type", ""),
            byte_size=byte_size,
            maximum_bytes=call.services.settings.max_upload_bytes,
            sink=sink,
            body_digests=tuple(
                value for name in ("Content-Digest", "Repr-Digest") if (value := headers.get(name))
            ),
        )
