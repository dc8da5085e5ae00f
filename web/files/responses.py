"""What the file routes share: the errors every one of them has, and how a file and its address are written."""

from uuid import UUID

from shared.errors import DomainError, PermissionDenied, ServiceUnavailable
from shared.files import errors
from shared.files.resources import Availability, File
from shared.files.staging import staged_availability
from shared.identity.access.authorization import Actor
from shared.identity.access.callers import Caller
from shared.identity.access.permissions import Permission
from web.files import schemas
from web.framework.calls import RequestContext, request_id
from web.http.client_address import client_address

FOUND: tuple[type[DomainError], ...] = (errors.FileNotFound, PermissionDenied, ServiceUnavailable)
ENDED: tuple[type[DomainError], ...] = (errors.FileExpired, errors.FileDeleted)


def file_body(caller: Caller, file: File) -> schemas.FileBody:
    """Describe a file to a caller."""
    permissions = caller.permissions_on(organization_id=file.organization_id, owner_id=file.owner_id)
    can_renew = file.purpose.supports_renewal and Permission.FILE_UPDATE in permissions
    return schemas.FileBody.of(file, can_renew=can_renew)


def content_url(call: RequestContext, file_id: UUID) -> str:
    """Give the protected address of a file's content."""
    return f"{call.services.settings.base_url}/files/{file_id}/content"


def actor_of(call: RequestContext) -> Actor:
    """Return who acts on files, for the audit: a deployment, too."""
    return Actor(
        caller=call.caller, request_id=request_id(), client_address=client_address(call.http.environ)
    )


def pending(call: RequestContext) -> Availability:
    """Tell what staged content counts as here."""
    return staged_availability(call.services.blobs)
