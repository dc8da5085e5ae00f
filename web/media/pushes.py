"""Receive media that a distribution pushes: an address to fetch later, or the bytes themselves.

Bytes that are pushed with the distribution's token stream into the store, under the limits of every upload.
This module fetches nothing.
"""

import io
from collections.abc import Mapping
from typing import TypeVar
from uuid import UUID

from pydantic import BaseModel, ValidationError

from shared import failpoints
from shared.credits.errors import StorageUnpaid
from shared.egress.errors import AddressRefused, HeaderRefused, SchemeRefused, UrlRefused
from shared.egress.policy import EgressPolicy
from shared.egress.urls import check_headers, parse_url
from shared.errors import DomainError, FieldError, PermissionDenied, ServiceUnavailable, ValidationFailed
from shared.files import errors as file_errors
from shared.files.blobs.base import BlobStoreUnavailable, StorageFull, StorageReadOnly
from shared.files.staging import Sink
from shared.identity.errors import OrganizationSuspended, ResourceNotFound, TargetDisabled
from shared.media import errors
from shared.media.attachments import Attachment
from shared.media.importing.authority import Proof
from shared.media.importing.import_queue import queue_imports
from shared.media.importing.imports import STANDARD, Import
from shared.media.importing.pushed_content import PushedPart, push_content
from shared.media.networks.webhooks import SignatureInvalid
from web.framework.authentication import Authentication
from web.framework.calls import JsonResponse, RequestContext
from web.framework.routes import JsonOrForm, Routes
from web.http.multipart import FRAMING_BYTES, Body
from web.http.requests import MAXIMUM_JSON_BYTES, UnsupportedMediaType, parse_json, refuse, wire_names
from web.media import schemas
from web.media.form_bodies import ReceivedForm, receive_form
from web.media.push_authentication import read_pushed_body

Shape = TypeVar("Shape", bound=BaseModel)

routes = Routes("media")

_ERRORS: tuple[type[DomainError], ...] = (
    SignatureInvalid,
    PermissionDenied,
    ResourceNotFound,
    OrganizationSuspended,
    errors.DistributionDisabled,
    TargetDisabled,
    StorageUnpaid,
    errors.ImportConflict,
    errors.TooManyImports,
    errors.MediaTypeMismatch,
    UrlRefused,
    SchemeRefused,
    AddressRefused,
    HeaderRefused,
    file_errors.FilePartRequired,
    file_errors.ByteSizeMismatch,
    file_errors.DigestMismatch,
    BlobStoreUnavailable,
    StorageFull,
    StorageReadOnly,
    ServiceUnavailable,
)


_LINKS = {
    "read_import": {
        "distributionId": "$request.path.distributionId",
        "importId": "$response.body#/importId",
    },
    "list_imports": {"distributionId": "$request.path.distributionId"},
}


@routes.route(
    "POST",
    "/distributions/<id:distribution_id>/media",
    summary="Push an inbound attachment, or several of one message",
    description=(
        "With a `url` it is Queued and fetched soon; with the bytes, as the part `file` of a form, "
        "it is Stored before the response. Pushing the same attachment again returns its first "
        "import; a different description is refused."
    ),
    authentication=Authentication.DISTRIBUTION_OR_SIGNATURE,
    body=JsonOrForm(json=(schemas.NewMedia, schemas.NewMediaBatch), fields=schemas.NewMediaFields),
    responses={202: schemas.PushResult},
    links=_LINKS,
    errors=_ERRORS,
)
def push_media(call: RequestContext, distribution_id: UUID) -> JsonResponse:
    signed_body, proof = read_pushed_body(call, distribution_id)
    if call.http.mimetype == "application/json":
        return _push_json(call, distribution_id, signed_body, proof)
    if call.http.mimetype == "multipart/form-data":
        return _push_form(call, distribution_id, signed_body, proof)
    raise UnsupportedMediaType("Send the body as application/json or multipart/form-data.")


def _push_json(
    call: RequestContext, distribution_id: UUID, signed_body: bytes | None, proof: Proof
) -> JsonResponse:
    services = call.services
    raw = signed_body
    if raw is None:
        raw = call.read_small_body(MAXIMUM_JSON_BYTES)
    push = _read_push(raw)
    items = push.items if isinstance(push, schemas.NewMediaBatch) else (push,)
    for item in items:
        check_source(call, item)
    failpoints.hit("push.received")
    with services.database.transaction() as session:
        queued = queue_imports(
            session,
            services.settings,
            distribution_id=distribution_id,
            network=STANDARD,
            attachments=[read_attachment(item, push.message_id, push.conversation_id) for item in items],
            secret_headers={item.attachment_id: item.headers for item in items if item.headers},
            proof=proof,
        )
        failpoints.hit("push.before_commit")
    failpoints.hit("push.queued")
    if isinstance(push, schemas.NewMediaBatch):
        shown = schemas.ImportList(items=[schemas.PushedImportBody.of(one) for one in queued])
        return JsonResponse(body=schemas.PushResult(shown), status=202)
    return _accepted(call, queued[0])


def _push_form(
    call: RequestContext, distribution_id: UUID, signed_body: bytes | None, proof: Proof
) -> JsonResponse:
    services = call.services
    settings = services.settings
    content_length = call.http.content_length or settings.max_media_bytes
    # Allow twice the framing bytes here: the exact limit applies to the file part and is checked while
    # parsing.
    if content_length > settings.max_media_bytes + 2 * FRAMING_BYTES:
        raise file_errors.ContentTooLarge(maximumBytes=settings.max_media_bytes)

    def receive(sink: Sink) -> PushedPart:
        if signed_body is not None:
            return _read_form(call, io.BytesIO(signed_body), sink)
        # Only an unsigned body takes a slot here: a signed body has already been received into memory.
        with services.receptions.admit(call.http.environ) as body:
            return _read_form(call, body, sink)

    stored = push_content(
        services.database,
        services.blobs,
        settings,
        distribution_id=distribution_id,
        proof=proof,
        receive=receive,
        time_limit_seconds=settings.upload_grace_seconds
        + content_length / settings.upload_minimum_bytes_per_second,
    )
    return _accepted(call, stored)


def _read_form(call: RequestContext, body: Body, sink: Sink) -> PushedPart:
    headers = call.http.headers
    form = receive_form(
        body,
        headers.get("Content-Type", ""),
        names=wire_names(schemas.NewMediaFields),
        maximum_bytes=call.services.settings.max_media_bytes,
        sink=sink,
        body_digests=tuple(
            value for name in ("Content-Digest", "Repr-Digest") if (value := headers.get(name))
        ),
    )
    return _pushed_part(form)


def _pushed_part(form: ReceivedForm) -> PushedPart:
    fields = _validated(schemas.NewMediaFields, form.fields)
    attachment = Attachment(
        message_id=fields.message_id,
        attachment_id=fields.attachment_id,
        conversation_id=fields.conversation_id,
        location={},
        file_name=fields.file_name,
        media_type=fields.media_type,
        size_bytes=fields.byte_size,
        sha256=_digest(fields.sha256),
    )
    return PushedPart(attachment=attachment, content=form.content, head=form.head)


def _read_push(raw: bytes) -> schemas.NewMedia | schemas.NewMediaBatch:
    parsed = parse_json(raw)
    if not isinstance(parsed, Mapping) or "items" not in parsed:
        return _validated(schemas.NewMedia, parsed)
    batch = _validated(schemas.NewMediaBatch, parsed)
    if len({item.attachment_id for item in batch.items}) < len(batch.items):
        message = "must not contain the same attachmentId twice"
        raise ValidationFailed(errors=[FieldError(location="body", name="items", message=message)])
    return batch


def _validated(shape: type[Shape], values: object) -> Shape:
    try:
        return shape.model_validate(values)
    except ValidationError as error:
        refuse("body", error)


def check_source(call: RequestContext, item: schemas.AttachedMedia) -> None:
    """Check the description of a pushed attachment before it is stored, by the rules that apply to fetching.

    Raises UrlRefused, SchemeRefused, AddressRefused, HeaderRefused and ContentTooLarge.
    """
    settings = call.services.settings
    if item.url is not None:
        parse_url(item.url, EgressPolicy.of(settings), with_secrets=bool(item.headers))
    check_headers(item.headers or {})
    if (item.byte_size or 0) > settings.max_media_bytes:
        raise file_errors.ContentTooLarge(maximumBytes=settings.max_media_bytes)


def read_attachment(item: schemas.AttachedMedia, message_id: str, conversation_id: str | None) -> Attachment:
    """Return the attachment that an item describes.

    If the item has no address, the attachment's location is empty.
    """
    return Attachment(
        message_id=message_id,
        attachment_id=item.attachment_id,
        conversation_id=conversation_id,
        location={} if item.url is None else {"url": item.url},
        file_name=item.file_name,
        media_type=item.media_type,
        size_bytes=item.byte_size,
        sha256=_digest(item.sha256),
    )


def _digest(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _accepted(call: RequestContext, made: Import) -> JsonResponse:
    address = f"{call.services.settings.base_url}/distributions/{made.distribution_id}/media/{made.id}"
    return JsonResponse(
        body=schemas.PushResult(schemas.PushedImportBody.of(made)), status=202, headers={"Location": address}
    )
