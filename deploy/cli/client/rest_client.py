"""A service over REST, by the project's own SDK: how commands open it, and how its refusals end them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

from deploy.cli.client.saved_logins import (
    Login,
    find_login,
    find_organization,
    find_remote_login,
    is_database_named,
)
from deploy.cli.exit_codes import ExitCode, Failure

if TYPE_CHECKING:
    from quartermaster import ApiError, Client

_REMEDIES = {
    "owner_required": "Files belong to agents: give a deployment's credentials with"
    " `quartermaster login --client-id ID`.",
    "invalid_token": "Run `quartermaster login`.",
}


@contextmanager
def service() -> Iterator[Client]:
    """Open the service as the person who is signed in."""
    with open_service(find_login(), prefers_deployment=False) as client:
        yield client


@contextmanager
def service_as_deployment() -> Iterator[Client]:
    """Open the service as the deployment whose credentials are there, else as the person."""
    with open_service(find_login(), prefers_deployment=True) as client:
        yield client


@contextmanager
def open_service(login: Login, *, prefers_deployment: bool) -> Iterator[Client]:
    """Open the service of a login; whatever it refuses ends the command with one line."""
    try:
        from quartermaster import ApiError, Client, ConnectionFailed, QuartermasterError
    except ImportError:
        raise Failure("This needs the SDK: install quartermaster-sdk beside the service.") from None
    try:
        credential: dict[str, Any] = {**login.credential(prefers_deployment=prefers_deployment)}
        with Client(base_url=login.base_url, max_retries=2, **credential) as client:
            yield client
    except ApiError as error:
        raise _failure_of(error) from None
    except ConnectionFailed as error:
        raise Failure(
            f"{login.base_url} does not answer ({error}); is it running?", ExitCode.TRY_LATER
        ) from None
    except QuartermasterError as error:
        raise Failure(str(error)) from None


def find_active_organization() -> UUID | None:
    """Give the organization that commands are about by default: none where DATABASE_URL names a database."""
    if is_database_named():
        return None
    if find_remote_login() is None:
        found = find_organization()
    else:
        with service() as client:
            found = client.raw.request("GET", "/admin/me")["activeOrganizationId"]
    return UUID(found) if found else None


def require_active(organization_id: UUID) -> None:
    """Refuse another organization than the active one, which is all that REST reports on."""
    if organization_id != find_active_organization():
        raise Failure("From afar, usage is shown of the active organization only.", ExitCode.WRONG_USAGE)


def _failure_of(error: ApiError) -> Failure:
    from quartermaster.errors import RateLimited, ServerError, Unauthenticated

    fields = "".join(f" {at.name} {at.message}." for at in error.errors)
    remedy = f" {_REMEDIES[error.code]}" if error.code in _REMEDIES else ""
    code = ExitCode.FAILED
    if isinstance(error, Unauthenticated):
        code = ExitCode.NOT_SIGNED_IN
    elif isinstance(error, (RateLimited, ServerError)) and not error.is_final:
        code = ExitCode.TRY_LATER
    return Failure(f"{error.code}: {error.message}{fields}{remedy}", code)
