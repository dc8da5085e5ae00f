"""Resumable uploads (draft-ietf-httpbis-resumable-upload): begin, query, append and cancel, with raw content.

A request with `Upload-Complete` begins a resumable upload. Its own headers contain the file's name and type.
The multipart form of the specification is unchanged (docs/specification/files.md#resumable).
"""

import re
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from flask import Request, Response

from shared.credits.errors import StorageUnpaid
from shared.errors import DomainError, PermissionDenied, ServiceUnavailable, ValidationFailed
from shared.files import errors
from shared.files.blobs.base import (
    BlobDamaged,
    BlobMissing,
    BlobStoreUnavailable,
    StorageFull,
    StorageReadOnly,
)
from shared.files.errors import InconsistentUploadLength
from shared.files.idempotency import OperationKind
from shared.files.resumable import completion, uploads
from shared.files.resumable.pieces import PIECE_BYTES, append
from shared.files.resumable.uploads import DeclaredContent, ResumableUpload, UploadLimits, UploadState
from shared.files.resumable.uploads import Request as UploadRequest
from shared.identity.access.callers import Caller
from shared.identity.errors import AttributionInvalid, AttributionMismatch, OwnerRequired, PayerMismatch
from web.error_responses.status_codes import answer_domain_error
from web.files import schemas
from web.files.responses import ENDED, actor_of, receipt_answer, time_limit_seconds
from web.framework.authentication import Authentication
from web.framework.calls import JsonResponse, RequestContext
from web.framework.routes import RawBody, Routes
from web.http.part_headers import read_file_headers
from web.http.requests import FieldRequired, MalformedRequest, UnsupportedMediaType

routes = Routes("files")

MEDIA_TYPE = "application/partial-upload"
BEGINNING_HEADERS = {
    "Upload-Complete": "`?0` to begin a resumable upload; absent, or `?1`, for one multipart request.",
    "Upload-Length": "With `Upload-Complete: ?0`: the same as byteSize, if it is sent.",
    "Content-Disposition": "With `Upload-Complete: ?0`: the file's name, as `attachment; filename*=UTF-8''…`.",
    "Repr-Digest": "The SHA-256 of the whole content (RFC 9530), checked when all content has arrived.",
}
APPENDING_HEADERS = {
    "Upload-Offset": "The offset at which this content begins: the upload's present offset.",
    "Upload-Complete": "`?1` if this is the last of the content, else `?0`.",
    "Upload-Length": "The same as byteSize, if it is sent.",
    "Prefer": "`respond-async`, or `wait=N`: how long the last answer may wait (RFC 7240).",
}
DIGEST_HEADER = {
    "Content-Digest": "The SHA-256 of the body (RFC 9530), checked when all content has arrived."
}
PROGRESS_HEADERS = {
    "Preference-Applied": "The preference that was applied.",
    "Upload-Complete": "Whether all content of a resumable upload was received.",
    "Upload-Offset": "The number of bytes stored of a resumable upload.",
    "Upload-Length": "The size of a resumable upload in bytes.",
    "Upload-Limit": "The maximum size in bytes and age in seconds of a resumable upload.",
}
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)
_FLAGS = {"?0": False, "?1": True}
_FORM = "multipart/form-data"

_FOUND: tuple[type[DomainError], ...] = (
    errors.UploadNotFound,
    errors.UploadEnded,
    PermissionDenied,
    ServiceUnavailable,
)


def begin_resumable(call: RequestContext, request: UploadRequest) -> JsonResponse | Response:
    """Create a resumable upload.

    If an upload with the same operationId exists, return that upload, or its result if it is complete.
    """
    refuse_content(call.http)
    check_length(call.http, request.byte_size)
    if request.byte_size > call.services.settings.max_upload_bytes:
        raise errors.ContentTooLarge(maximumBytes=call.services.settings.max_upload_bytes)
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
    summary="Get the offset of a resumable upload",
    description=(
        "Continue at `Upload-Offset`. An older request that still sends content can no longer add any."
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
    summary="Add content to a resumable upload; the last request returns the upload's result",
    description=(
        "`Upload-Offset` must be the upload's offset. Received content is kept, also of an interrupted request. "
        "204 until the last content; with `Upload-Complete: ?1` the whole content is checked and stored: 201 for a new "
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
        errors.DigestMismatch,
        errors.UploadTimeout,
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
    summary="Cancel a resumable upload and delete its content",
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
    """Store a request's content. If it is the last content, complete the upload."""
    http, size = call.http, upload.request.byte_size
    if http.mimetype != MEDIA_TYPE:
        raise UnsupportedMediaType(f"Send the content as {MEDIA_TYPE}.")
    is_last, offset = read_flag(http), read_number(http, "Upload-Offset", is_required=True)
    check_length(http, size)
    # The upload keeps the owner and payer of its first request, even if this request has no attribution.
    caller = uploads.bound_caller(call.services.revalidator, call.caller, upload)
    if upload.is_finished:
        return _complete(call, caller, upload)
    # The error response contains both offsets, so the client can continue without another request.
    if offset != upload.received_bytes:
        raise _mismatch(upload.received_bytes, offset)
    # Refuse too much content before receiving a byte. A body without a length is refused when it exceeds the
    # size.
    if upload.received_bytes + (http.content_length or 0) > size:
        raise errors.InconsistentUploadLength
    _receive(call, caller, upload)
    received = uploads.get_upload(call.services.database, call.caller, upload.id)
    if not is_last:
        return JsonResponse(status=204, headers=_progress(call, received))
    return _complete(call, caller, received)


def _receive(call: RequestContext, caller: Caller, upload: ResumableUpload) -> None:
    """Store the content of a request. Raises UploadTimeout, and MalformedRequest if its body ends early."""
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
            raise MalformedRequest(
                "The body ended early; the received part is stored. Get the offset and continue."
            )


def _complete(call: RequestContext, caller: Caller, upload: ResumableUpload) -> JsonResponse:
    services = call.services
    # Completing reads and writes all content once more, so it takes a slot as receiving did.
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
    """Return the response to an error with the upload's progress, so that the client need not query for it."""
    response = answer_domain_error(error)
    try:
        now = uploads.get_upload(call.services.database, call.caller, upload.id)
    except DomainError:
        # The upload has ended, or the database does not respond: send the error without progress.
        return response
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


def is_resumable(http: Request) -> bool:
    """Return whether a write begins a resumable upload.

    A multipart request does not, although it may contain `Upload-Complete: ?1`.
    """
    if "Upload-Complete" not in http.headers:
        return False
    return not (read_flag(http) and http.mimetype == _FORM)


def read_declared_content(http: Request) -> DeclaredContent:
    """Return the name, type and digest that a request declares for content sent later.

    Raises ValidationFailed, MalformedRequest.
    """
    header = read_file_headers(
        http.headers.get("Content-Disposition", ""),
        http.headers.get("Content-Type", ""),
        http.headers.get("Repr-Digest", ""),
    )
    if len(set(header.digests)) > 1:
        raise MalformedRequest("Repr-Digest has two different SHA-256 digests; send one.")
    digest = header.digests[0] if header.digests else None
    return DeclaredContent(file_name=header.file_name, media_type=header.media_type, sha256=digest)


def refuse_content(http: Request) -> None:
    """Raise UnsupportedMediaType unless the request has no content and announces that more will follow."""
    if http.mimetype == _FORM:
        raise UnsupportedMediaType("A multipart form is one request: omit Upload-Complete, or send ?1.")
    if read_flag(http) or http.content_length or "Transfer-Encoding" in http.headers:
        raise UnsupportedMediaType(
            "Begin a resumable upload with Upload-Complete: ?0 and no content; send content by PATCH to its Location."
        )


def check_length(http: Request, size: int) -> None:
    """Raise InconsistentUploadLength if `Upload-Length` is sent and differs from the size."""
    length = read_number(http, "Upload-Length")
    if length not in (None, size):
        raise InconsistentUploadLength("Upload-Length differs from byteSize.")


def read_flag(http: Request) -> bool:
    """Return the value of `Upload-Complete`. Raises MalformedRequest."""
    flag = _FLAGS.get(http.headers.get("Upload-Complete", "").strip())
    if flag is None:
        raise MalformedRequest("Upload-Complete must be ?0 or ?1.")
    return flag


def read_number(http: Request, name: str, *, is_required: bool = False) -> int | None:
    """Return a header that is a number of bytes.

    Return None if the header is absent and not required. Raises MalformedRequest.
    """
    value = http.headers.get(name, "").strip()
    if not value and not is_required:
        return None
    if not _NUMBER.fullmatch(value):
        raise MalformedRequest(f"{name} must be a number of bytes.")
    return int(value)
