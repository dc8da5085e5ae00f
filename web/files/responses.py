"""The errors, bodies and responses to writes that the file routes share."""

import re
from dataclasses import dataclass
from uuid import UUID

from shared.errors import DomainError, PermissionDenied, ServiceUnavailable
from shared.files import errors
from shared.files.lifecycle.placement import wait_while_staged
from shared.files.resources import Availability, File, Receipt
from shared.files.retention import can_renew
from shared.files.staging import staged_availability
from shared.identity.access.authorization import Actor
from shared.identity.access.callers import Caller
from web.files import schemas
from web.framework.calls import JsonResponse, RequestContext, request_id
from web.http.client_address import client_address

FOUND: tuple[type[DomainError], ...] = (errors.FileNotFound, PermissionDenied, ServiceUnavailable)
ENDED: tuple[type[DomainError], ...] = (errors.FileExpired, errors.FileDeleted)


def file_body(caller: Caller, file: File) -> schemas.FileBody:
    """Return a file's description for a caller."""
    return schemas.FileBody.of(file, can_renew=can_renew(caller, file))


def content_url(call: RequestContext, file_id: UUID) -> str:
    """Return the URL of a file's content. Requests to this URL need a credential."""
    return f"{call.services.settings.base_url}/files/{file_id}/content"


def actor_of(call: RequestContext) -> Actor:
    """Return the actor of a request, for the audit log. A deployment is an actor too."""
    return Actor(
        caller=call.caller, request_id=request_id(), client_address=client_address(call.http.environ)
    )


def pending(call: RequestContext) -> Availability:
    """Return the availability of staged content in this service's own store."""
    return staged_availability(call.services.blobs)


_WAIT = re.compile(r'wait\s*=\s*"?(\d{1,6})"?', re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """The `Prefer` header (RFC 7240) of a write."""

    responds_async: bool
    wait_seconds: float
    applied: str | None


def read_preference(header: str | None, *, longest_wait_seconds: float) -> Preference:
    """Return the preference in a header.

    Unknown tokens are ignored. A wait that is longer than `longest_wait_seconds` is shortened to it.
    """
    tokens = [token.partition(";")[0].strip() for token in (header or "").split(",")]
    if any(token.lower() == "respond-async" for token in tokens):
        return Preference(responds_async=True, wait_seconds=0, applied="respond-async")
    for token in tokens:
        match = _WAIT.fullmatch(token)
        if match:
            wait = min(float(match[1]), longest_wait_seconds)
            return Preference(responds_async=False, wait_seconds=wait, applied=f"wait={wait:g}")
    return Preference(responds_async=False, wait_seconds=longest_wait_seconds, applied=None)


def time_limit_seconds(call: RequestContext, byte_size: int) -> float:
    """Return how many seconds the reception of `byte_size` bytes may take."""
    settings = call.services.settings
    return settings.upload_grace_seconds + byte_size / settings.upload_minimum_bytes_per_second


def receipt_answer(call: RequestContext, receipt: Receipt, *, first_status: int) -> JsonResponse:
    """Return the response to a write.

    If readers can find the version already, respond at once. Otherwise wait until the version is placed or
    the wait ends.
    """
    settings = call.services.settings
    preference = read_preference(
        call.http.headers.get("Prefer"), longest_wait_seconds=settings.upload_wait_seconds
    )
    # Send 202 to the first attempt only: a client polls by repeating its request.
    is_pending = preference.responds_async and not receipt.replayed
    if receipt.availability is Availability.PENDING:
        is_pending = wait_while_staged(call.services.database, receipt.version.id, preference.wait_seconds)
    url = content_url(call, receipt.version.file_id)
    headers = {"Location": f"{settings.base_url}/files/{receipt.version.file_id}"}
    if preference.applied:
        headers["Preference-Applied"] = preference.applied
    if is_pending:
        return JsonResponse(body=schemas.PendingUploadResult.of(receipt, url), status=202, headers=headers)
    status = 200 if receipt.replayed else first_status
    return JsonResponse(body=schemas.UploadResult.of(receipt, url), status=status, headers=headers)
