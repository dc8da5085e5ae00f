"""The file routes (specification 4.1 to 4.7): read the request, call the domain, write the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from flask import Response

from shared.errors import DomainError, FieldError, PermissionDenied, Unavailable, ValidationFailed
from shared.files import (
    access,
    body_errors,
    deletion,
    errors,
    grants,
    references,
    replaces,
    retention,
    uploads,
)
from shared.files.blobs.base import BlobDamaged, BlobMissing, BlobStoreUnavailable, StorageFull
from shared.files.content import get_content, refuse_pending
from shared.files.operations import ReceivedPart
from shared.files.placement import wait_while_staged
from shared.files.references import ReferenceKind
from shared.files.resources import Availability, Content, File, Purpose, Receipt
from shared.files.staging import OpenReceiver, staged_availability
from shared.identity.callers import Caller
from shared.identity.errors import OwnerRequired, PayerMismatch
from shared.identity.permissions import Permission
from shared.telemetry import get_logger
from web.authentication import Authentication, slow_down_guessing
from web.calls import Answer, Call
from web.edge import GRANTS
from web.files import schemas
from web.files.content_response import content_response
from web.files.multipart import receive_file_part
from web.files.preferences import read_preference
from web.files.ranges import RangeNotSatisfiable
from web.requests import (
    DuplicateParameter,
    FieldRequired,
    MalformedJson,
    MalformedRequest,
    UnsupportedMediaType,
)
from web.routing import FilePart, Routes

log = get_logger(__name__)
routes = Routes("files")

_FOUND: tuple[type[DomainError], ...] = (errors.FileNotFound, PermissionDenied, Unavailable)
_ENDED: tuple[type[DomainError], ...] = (errors.FileExpired, errors.FileDeleted)
_BODY: tuple[type[DomainError], ...] = (
    MalformedRequest,
    body_errors.FilePartRequired,
    body_errors.ByteSizeMismatch,
    body_errors.DigestMismatch,
    body_errors.ContentTooLarge,
    body_errors.UploadTimeout,
    UnsupportedMediaType,
    BlobStoreUnavailable,
    StorageFull,
    errors.OperationConflict,
    errors.OperationInProgress,
    FieldRequired,
    ValidationFailed,
)


# What a client does next with an upload's answer: parameters by operation, as OpenAPI links write them.
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


@routes.operation(
    "POST",
    "/files/agent-artifacts",
    authentication=Authentication.CALLER,
    query=schemas.UploadQuery,
    body=FilePart(),
    answers={201: schemas.UploadResult, 200: schemas.UploadResult, 202: schemas.PendingUploadResult},
    links=_OF_UPLOADED,
    errors=(OwnerRequired, PermissionDenied, PayerMismatch, Unavailable, *_BODY),
)
def upload_agent_artifact(call: Call) -> Answer:
    """Upload agent output.

    The new file belongs to the owner of the call: the receiving identity of the attributed request, else the
    deployment's daemon. 201 for the first attempt, 200 for a retry, 202 while the content is still being placed.
    """
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
        time_limit_seconds=_time_limit_seconds(call, query.byte_size),
    )
    services = call.services
    receipt = uploads.upload(
        services.database, services.blobs, call.caller, request, _receive(call, query.byte_size)
    )
    return _receipt_answer(call, receipt, first_status=201)


@routes.operation(
    "PUT",
    "/files/<id:file_id>",
    authentication=Authentication.CALLER,
    query=schemas.ReplaceQuery,
    body=FilePart(),
    answers={200: schemas.UploadResult, 202: schemas.PendingUploadResult},
    errors=(
        *_FOUND,
        *_ENDED,
        errors.ReplaceNotSupported,
        errors.PreconditionRequired,
        errors.VersionMismatch,
        *_BODY,
    ),
)
def replace_content(call: Call, file_id: UUID) -> Answer:
    """Replace the content of agent output.

    Both expectations must match the current version. The file keeps its id, owner and retention; earlier versions
    stay readable by their versionId and their grants.
    """
    query: schemas.ReplaceQuery = call.query
    request = replaces.ReplaceRequest(
        operation_id=query.operation_id,
        file_id=file_id,
        expected_version_id=query.expected_version_id,
        expected_revision=query.expected_revision,
        byte_size=query.byte_size,
        time_limit_seconds=_time_limit_seconds(call, query.byte_size),
    )
    services = call.services
    receipt = replaces.replace(
        services.database, services.blobs, call.caller, request, _receive(call, query.byte_size)
    )
    return _receipt_answer(call, receipt, first_status=200)


@routes.operation(
    "GET",
    "/files",
    authentication=Authentication.CALLER,
    query=schemas.ListQuery,
    answers={200: schemas.FilePage},
    errors=(PermissionDenied, ValidationFailed, MalformedRequest, Unavailable),
)
def list_files(call: Call) -> Answer:
    """List the files of the caller's owner scope, newest first."""
    query: schemas.ListQuery = call.query
    with call.services.database.autocommit() as session:
        page = access.list_files(
            session,
            call.caller,
            cursor=query.cursor,
            limit=query.limit,
            purpose=Purpose(query.purpose) if query.purpose else None,
            availability=Availability(query.availability) if query.availability else None,
            pending=_pending(call),
        )
    files = [_file_body(call.caller, file) for file in page.files]
    return Answer(body=schemas.FilePage(files=files, next_cursor=page.next_cursor))


@routes.operation(
    "GET",
    "/files/<id:file_id>",
    authentication=Authentication.CALLER,
    answers={200: schemas.FileBody},
    errors=_FOUND,
)
def read_metadata(call: Call, file_id: UUID) -> Answer:
    """Read a file's metadata; an expired or deleted file still answers."""
    with call.services.database.autocommit() as session:
        file = access.get_file(session, call.caller, file_id, Permission.FILE_READ, pending=_pending(call))
    return Answer(body=_file_body(call.caller, file))


@routes.operation(
    "DELETE",
    "/files/<id:file_id>",
    authentication=Authentication.CALLER,
    query=schemas.DeleteQuery,
    answers={200: schemas.DeletionBody},
    errors=(
        *_FOUND,
        *_ENDED,
        errors.FileReferenced,
        errors.OperationConflict,
        errors.OperationInProgress,
        FieldRequired,
        MalformedRequest,
    ),
)
def delete_file(call: Call, file_id: UUID) -> Answer:
    """Delete a file and all its versions; grants stop working at once."""
    deleted = deletion.delete(call.services.database, call.caller, file_id, call.query.operation_id)
    return Answer(body=schemas.DeletionBody.of(deleted))


@routes.operation(
    "PUT",
    "/files/<id:file_id>/retention",
    authentication=Authentication.CALLER,
    body=schemas.RetentionBody,
    answers={200: schemas.FileBody},
    errors=(
        *_FOUND,
        *_ENDED,
        errors.RetentionShortened,
        errors.RetentionIsIndefinite,
        errors.RetentionRenewalNotSupported,
        FieldRequired,
        ValidationFailed,
        MalformedJson,
        UnsupportedMediaType,
        body_errors.ContentTooLarge,
    ),
)
def renew_retention(call: Call, file_id: UUID) -> Answer:
    """Renew a file's retention: to a later deadline, or with null for ever."""
    database = call.services.database
    with database.autocommit() as session:
        retention.get_renewable(session, call.caller, file_id, pending=_pending(call))
    body: schemas.RetentionBody = call.read_body()
    file = retention.renew(database, call.caller, file_id, body.retention_expires_at, pending=_pending(call))
    return Answer(body=_file_body(call.caller, file))


@routes.operation(
    "GET",
    "/files/<id:file_id>/versions",
    authentication=Authentication.CALLER,
    answers={200: schemas.VersionList},
    errors=_FOUND,
)
def list_versions(call: Call, file_id: UUID) -> Answer:
    """List a file's versions, newest first."""
    with call.services.database.autocommit() as session:
        file = access.get_file(session, call.caller, file_id, Permission.FILE_READ, pending=_pending(call))
        versions = access.list_versions(session, file_id)
    described = [
        schemas.VersionBody(
            version_id=version.id,
            revision=version.revision,
            metadata=schemas.Metadata.of(version, file.retention_expires_at),
        )
        for version in versions
    ]
    return Answer(body=schemas.VersionList(versions=described))


@routes.operation(
    "POST",
    "/files/<id:file_id>/versions/<id:version_id>/grants",
    authentication=Authentication.CALLER,
    query=schemas.GrantQuery,
    answers={201: schemas.GrantBody},
    errors=(*_FOUND, errors.VersionNotFound, *_ENDED, ValidationFailed),
)
def create_grant(call: Call, file_id: UUID, version_id: UUID) -> Answer:
    """Create an exact-version read grant; whoever holds its url can download without credentials."""
    grant = grants.create_grant(
        call.services.database, call.caller, file_id, version_id, call.query.ttl_seconds
    )
    body = schemas.GrantBody.of(grant, f"{_content_url(call, file_id)}?grant={grant.token}")
    return Answer(body=body, status=201, headers={"Cache-Control": "no-store"})


@routes.operation(
    "GET",
    "/files/<id:file_id>/references",
    authentication=Authentication.CALLER,
    answers={200: schemas.ReferenceList},
    errors=_FOUND,
)
def list_references(call: Call, file_id: UUID) -> Answer:
    """List what refers to a file."""
    with call.services.database.autocommit() as session:
        access.get_file(session, call.caller, file_id, Permission.FILE_READ, pending=_pending(call))
        found = references.list_references(session, file_id)
    return Answer(body=schemas.ReferenceList(references=[schemas.ReferenceBody.of(at) for at in found]))


@routes.operation(
    "PUT",
    "/files/<id:file_id>/references/<reference_kind:kind>/<reference_id:reference_id>",
    authentication=Authentication.CALLER,
    answers={200: schemas.ReferenceBody, 201: schemas.ReferenceBody},
    errors=(*_FOUND, *_ENDED),
)
def put_reference(call: Call, file_id: UUID, kind: ReferenceKind, reference_id: str) -> Answer:
    """Let a resource refer to a file, which then cannot be deleted."""
    reference, is_new = references.add_reference(
        call.services.database, call.caller, file_id, kind, reference_id
    )
    return Answer(body=schemas.ReferenceBody.of(reference), status=201 if is_new else 200)


@routes.operation(
    "DELETE",
    "/files/<id:file_id>/references/<reference_kind:kind>/<reference_id:reference_id>",
    authentication=Authentication.CALLER,
    answers={204: None},
    errors=(*_FOUND, errors.ReferenceNotFound),
)
def delete_reference(call: Call, file_id: UUID, kind: ReferenceKind, reference_id: str) -> Answer:
    """Let a resource no longer refer to a file."""
    references.remove_reference(call.services.database, call.caller, file_id, kind, reference_id)
    return Answer(status=204)


@routes.operation(
    "GET",
    "/files/<id:file_id>/content",
    authentication=Authentication.GRANT_OR_CALLER,
    query=schemas.ContentQuery,
    answers={200: "application/octet-stream", 206: "application/octet-stream", 304: None},
    errors=(
        *_FOUND,
        *_ENDED,
        errors.VersionNotFound,
        errors.GrantNotFound,
        errors.GrantExpired,
        errors.FilePending,
        errors.VersionMismatch,
        RangeNotSatisfiable,
        BlobMissing,
        BlobDamaged,
        BlobStoreUnavailable,
    ),
)
def download_content(call: Call, file_id: UUID) -> Response:
    """Download exact content, by a read grant or with credentials.

    A grant names its version; with credentials it is the current one unless `versionId` says otherwise. Takes
    ranges and conditions (RFC 9110).
    """
    services = call.services
    content = _get_content(call, file_id)
    refuse_pending(content, services.blobs)
    try:
        return content_response(
            call.http.environ,
            content.version,
            services.blobs.open(content.version.id, placed=content.is_placed),
            cache_control="private, no-store" if call.http.environ.get(GRANTS) else "private, no-cache",
            proxy_prefix=services.settings.x_accel_prefix,
        )
    except BlobMissing:
        # If the file ended between the look at its row and the look at its bytes, that is the answer.
        _get_content(call, file_id)
        log.warning("blob.missing", version_id=content.version.id)
        raise


def _get_content(call: Call, file_id: UUID) -> Content:
    sent_grants = call.http.environ.get(GRANTS)
    try:
        with call.services.database.autocommit() as session:
            if sent_grants:
                content = grants.get_granted_content(session, file_id, _one_grant(sent_grants))
                # The grant says which version; a query may repeat it, but not choose another.
                if call.query.version_id not in (None, content.version.id):
                    raise errors.GrantNotFound
                return content
            return get_content(session, call.caller, file_id, call.query.version_id)
    except errors.GrantNotFound:
        slow_down_guessing(call.http, call.services)
        raise


def _one_grant(sent: Sequence[str]) -> str:
    """Give the one grant of a request."""
    if len(sent) > 1:
        raise DuplicateParameter(
            errors=[FieldError(location="query", name="grant", message="was sent more than once")]
        )
    return sent[0]


def _receive(call: Call, byte_size: int) -> Callable[[OpenReceiver | None], ReceivedPart]:
    """Make the function that receives this request's one part, bounded in size, pace and number."""
    headers = call.http.headers
    digests = tuple(value for name in ("Content-Digest", "Repr-Digest") if (value := headers.get(name)))

    def receive(open_receiver: OpenReceiver | None) -> ReceivedPart:
        with call.services.receptions.admit(call.http.environ) as body:
            return receive_file_part(
                body,
                headers.get("Content-Type", ""),
                byte_size=byte_size,
                maximum_bytes=call.services.settings.max_upload_bytes,
                open_sink=None if open_receiver is None else lambda _: open_receiver(),
                body_digests=digests,
            )

    return receive


def _time_limit_seconds(call: Call, byte_size: int) -> float:
    settings = call.services.settings
    return settings.upload_grace_seconds + byte_size / settings.upload_minimum_bytes_per_second


def _receipt_answer(call: Call, receipt: Receipt, *, first_status: int) -> Answer:
    """Answer with the stored version: at once if readers find it, else when it is placed or the wait is over."""
    settings = call.services.settings
    preference = read_preference(
        call.http.headers.get("Prefer"), longest_wait_seconds=settings.upload_wait_seconds
    )
    is_pending = preference.responds_async and not receipt.replayed
    if receipt.availability is Availability.PENDING:
        is_pending = wait_while_staged(call.services.database, receipt.version.id, preference.wait_seconds)
    url = _content_url(call, receipt.version.file_id)
    headers = {"Location": f"{settings.base_url}/files/{receipt.version.file_id}"}
    if preference.applied:
        headers["Preference-Applied"] = preference.applied
    if is_pending:
        return Answer(body=schemas.PendingUploadResult.of(receipt, url), status=202, headers=headers)
    status = 200 if receipt.replayed else first_status
    return Answer(body=schemas.UploadResult.of(receipt, url), status=status, headers=headers)


def _file_body(caller: Caller, file: File) -> schemas.FileBody:
    permissions = caller.permissions_on(organization_id=file.organization_id, owner_id=file.owner_id)
    can_renew = file.purpose.supports_renewal and Permission.FILE_UPDATE in permissions
    return schemas.FileBody.of(file, can_renew=can_renew)


def _content_url(call: Call, file_id: UUID) -> str:
    return f"{call.services.settings.base_url}/files/{file_id}/content"


def _pending(call: Call) -> Availability:
    return staged_availability(call.services.blobs)
