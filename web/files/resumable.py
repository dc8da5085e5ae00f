"""Resumable uploads (draft-ietf-httpbis-resumable-upload): begin, ask, append and cancel; their content is raw.

The multipart form of the specification stays as it is: a resumable upload is asked for by `Upload-Complete`, with the
file's name and type in the request's own headers (docs/specification/files.md#resumable).
"""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from flask import Response

from shared.credits.errors import StorageUnpaid
from shared.errors import DomainError, PermissionDenied, ServiceUnavailable, ValidationFailed
from shared.files import errors, upload_errors
from shared.files.blobs.base import (
    BlobDamaged,
    BlobMissing,
    BlobStoreUnavailable,
    StorageFull,
    StorageReadOnly,
)
from shared.files.idempotency import OperationKind
from shared.files.resumable import completion, uploads
from shared.files.resumable.pieces import PIECE_BYTES, append
from shared.files.resumable.uploads import Request as UploadRequest
from shared.files.resumable.uploads import ResumableUpload, UploadLimits, UploadState
from shared.identity.access.callers import Caller
from shared.identity.errors import AttributionInvalid, AttributionMismatch, OwnerRequired, PayerMismatch
from web.error_responses.status_codes import answer_domain_error
from web.files import schemas
from web.files.receipts import receipt_answer, time_limit_seconds
from web.files.responses import ENDED, actor_of
from web.files.upload_headers import (
    APPENDING_HEADERS,
    MEDIA_TYPE,
    PROGRESS_HEADERS,
    check_length,
    read_declared_content,
    read_flag,
    read_number,
    refuse_content,
)
from web.framework.authentication import Authentication
from web.framework.calls import JsonResponse, RequestContext
from web.framework.routes import RawBody, Routes
from web.http.requests import FieldRequired, MalformedRequest, UnsupportedMediaType

routes = Routes("files")

_FOUND: tuple[type[DomainError], ...] = (
    errors.UploadNotFound,
    errors.UploadEnded,
    PermissionDenied,
    ServiceUnavailable,
)


def begin_resumable(call: RequestContext, request: UploadRequest) -> JsonResponse | Response:
    """Begin a resumable upload, or find the one that its operationId began, or give that one's result."""
    refuse_content(call.http)
    check_length(call.http, request.byte_size)
    if request.byte_size > call.services.settings.max_upload_bytes:
        raise upload_errors.ContentTooLarge(maximumBytes=call.services.settings.max_upload_bytes)
    services, declared = call.services, read_declared_content(call.http)
    prechecked = completion.precheck(services.database, services.blobs, call.caller, request)
    if prechecked.outcome is not None:
        receipt = completion.replay_without_content(services.blobs, prechecked.outcome, declared)
        return _finished(receipt_answer(call, receipt, first_status=200), request.byte_size)
    begun = uploads.begin(services.database, call.caller, prechecked, request, declared, _limits(call))
    location = f"{services.settings.base_url}/files/uploads/{begun.id}"
    return JsonResponse(status=201, headers={"Location": location, **_progress(call, begun)})


@routes.route(
    "HEAD",
    "/files/uploads/<id:upload_id>",
    summary="Check how much of a resumable upload is kept",
    description=(
        "`Upload-Offset` tells where to go on. An older request that still sends content can add nothing more."
    ),
    authentication=Authentication.CALLER,
    responses={204: None},
    response_headers=PROGRESS_HEADERS,
    errors=_FOUND,
)
def read_upload(call: RequestContext, upload_id: UUID) -> JsonResponse:
    upload = uploads.take_over(call.services.database, call.caller, upload_id)
    return JsonResponse(status=204, headers=_progress(call, upload))


@routes.route(
    "PATCH",
    "/files/uploads/<id:upload_id>",
    summary="Add content to a resumable upload; the last of it answers as an upload does",
    description=(
        "`Upload-Offset` must be where the upload ends. What arrives is kept, also of a request that breaks off. "
        "204 while more is to come; with `Upload-Complete: ?1` the whole content is checked and stored: 201 for a new "
        "file, 200 for a replaced one and for a retry."
    ),
    authentication=Authentication.CALLER,
    headers=APPENDING_HEADERS,
    body=RawBody(media_types=(MEDIA_TYPE,)),
    response_headers=PROGRESS_HEADERS,
    responses={
        200: schemas.UploadResult,
        201: schemas.UploadResult,
        202: schemas.PendingUploadResult,
        204: None,
    },
    errors=(
        *_FOUND,
        *ENDED,
        errors.FileNotFound,
        errors.MismatchingUploadOffset,
        errors.InconsistentUploadLength,
        errors.OperationConflict,
        errors.OperationInProgress,
        errors.ReplaceNotSupported,
        errors.PreconditionRequired,
        errors.VersionMismatch,
        AttributionInvalid,
        AttributionMismatch,
        OwnerRequired,
        PayerMismatch,
        PermissionDenied,
        StorageUnpaid,
        ValidationFailed,
        FieldRequired,
        MalformedRequest,
        UnsupportedMediaType,
        upload_errors.DigestMismatch,
        upload_errors.UploadTimeout,
        BlobDamaged,
        BlobMissing,
        BlobStoreUnavailable,
        StorageFull,
        StorageReadOnly,
    ),
)
def append_content(call: RequestContext, upload_id: UUID) -> JsonResponse | Response:
    services = call.services
    upload = uploads.take_over(services.database, call.caller, upload_id)
    try:
        return _append(call, upload)
    except DomainError as error:
        return _with_progress(call, upload, error)


@routes.route(
    "DELETE",
    "/files/uploads/<id:upload_id>",
    summary="Cancel a resumable upload; what was kept of it is removed",
    authentication=Authentication.CALLER,
    responses={204: None},
    errors=_FOUND,
)
def cancel_upload(call: RequestContext, upload_id: UUID) -> JsonResponse:
    services = call.services
    upload = uploads.take_over(services.database, call.caller, upload_id)
    uploads.end(services.database, upload.id, UploadState.CANCELLED)
    return JsonResponse(status=204)


def _append(call: RequestContext, upload: ResumableUpload) -> JsonResponse:
    """Keep a request's content, and complete the upload if it is the last."""
    http, size = call.http, upload.request.byte_size
    if http.mimetype != MEDIA_TYPE:
        raise UnsupportedMediaType(f"Send the content as {MEDIA_TYPE}.")
    is_last, offset = read_flag(http), read_number(http, "Upload-Offset", is_required=True)
    check_length(http, size)
    caller = uploads.bound_caller(call.services.revalidator, call.caller, upload)
    if upload.is_finished:
        return _complete(call, caller, upload)
    if offset != upload.received_bytes:
        raise _mismatch(upload.received_bytes, offset)
    if upload.received_bytes + (http.content_length or 0) > size:
        raise errors.InconsistentUploadLength
    _receive(call, caller, upload)
    received = uploads.get_upload(call.services.database, call.caller, upload.id)
    if not is_last:
        return JsonResponse(status=204, headers=_progress(call, received))
    return _complete(call, caller, received)


def _receive(call: RequestContext, caller: Caller, upload: ResumableUpload) -> None:
    """Keep what a request brings. Raises UploadTimeout, MalformedRequest when its body ends early."""
    services = call.services
    with services.receptions.admit(call.http.environ) as body:
        append(
            services.database,
            services.blobs,
            caller,
            upload,
            body,
            kept=_limits(call).kept,
            time_limit_seconds=time_limit_seconds(call, PIECE_BYTES),
            revalidate=services.revalidator.revalidate,
        )
        if body.remaining_bytes:
            raise MalformedRequest("The body breaks off; what came of it is kept.")


def _complete(call: RequestContext, caller: Caller, upload: ResumableUpload) -> JsonResponse:
    services = call.services
    # All the content is read and written once more: that takes a slot as receiving it would.
    call.admission.hold(services.pools.uploads)
    receipt = completion.complete(
        services.database,
        services.blobs,
        replace(actor_of(call), caller=caller),
        upload,
        services.revalidator.revalidate,
    )
    first_status = 201 if upload.kind is OperationKind.UPLOAD else 200
    answer = receipt_answer(call, receipt, first_status=first_status)
    return _finished(answer, upload.request.byte_size)


def _with_progress(call: RequestContext, upload: ResumableUpload, error: DomainError) -> Response:
    """Answer an error together with what is kept, so that its reader need not ask."""
    response = answer_domain_error(error)
    try:
        now = uploads.get_upload(call.services.database, call.caller, upload.id)
    except DomainError:
        return response  # it is over, or nobody can tell
    response.headers.update(_progress(call, now))
    return response


def _progress(call: RequestContext, upload: ResumableUpload) -> dict[str, str]:
    settings, size = call.services.settings, upload.request.byte_size
    return {
        "Upload-Offset": str(size if upload.is_finished else upload.received_bytes),
        "Upload-Complete": "?1" if upload.is_finished else "?0",
        "Upload-Length": str(size),
        "Upload-Limit": f"max-size={settings.max_upload_bytes}, max-age={max(0, upload.seconds_left)}",
        "Cache-Control": "no-store",
    }


def _finished(answer: JsonResponse, size: int) -> JsonResponse:
    headers = {"Upload-Offset": str(size), "Upload-Complete": "?1", "Upload-Length": str(size)}
    return JsonResponse(body=answer.body, status=answer.status, headers={**answer.headers, **headers})


def _mismatch(expected: int, provided: int | None) -> errors.MismatchingUploadOffset:
    return errors.MismatchingUploadOffset(expectedOffset=expected, providedOffset=provided)


def _limits(call: RequestContext) -> UploadLimits:
    settings = call.services.settings
    return UploadLimits(
        kept=timedelta(seconds=settings.upload_kept_seconds),
        per_caller=settings.open_uploads_per_caller,
        per_organization=settings.open_uploads_per_organization,
    )
