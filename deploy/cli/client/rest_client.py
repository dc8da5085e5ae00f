"""Open the SDK's client for a command, and convert the client's errors to exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

from deploy.cli.client.saved_logins import (
    ENVIRONMENT,
    Login,
    find_home_organization,
    find_login,
    find_remote_login,
    is_database_configured,
)
from deploy.cli.exit_codes import ExitCode, Failure

if TYPE_CHECKING:
    from quartermaster import ApiError, Client

_REMEDIES = {
    "owner_required": "Only a deployment can own files: store its credentials with"
    " `quartermaster login ADDRESS --client-id ID`.",
}


@contextmanager
def service() -> Iterator[Client]:
    """Yield a client with the user's API key, or with the deployment's credentials if no API key is configured."""
    with open_service(find_login(), prefers_deployment=False) as client:
        yield client


@contextmanager
def service_as_deployment() -> Iterator[Client]:
    """Yield a client with the deployment's credentials, or with the user's API key if no deployment is configured."""
    with open_service(find_login(), prefers_deployment=True) as client:
        yield client


@contextmanager
def open_service(login: Login, *, prefers_deployment: bool) -> Iterator[Client]:
    """Yield a client for the service and credential of a login.

    Raises Failure if the SDK is not installed, or if the block raises an error of the SDK. The failure has the exit
    code for that error.
    """
    try:
        # Import here: the SDK is a separate package, and commands that do not need it must work without it.
        from quartermaster import ApiError, Client, ConnectionFailed, QuartermasterError
    except ImportError:
        raise Failure("This command needs the SDK: run `pip install quartermaster-sdk`.") from None
    try:
        credential: dict[str, Any] = {**login.credential(prefers_deployment=prefers_deployment)}
        # Use fewer retries than the SDK's default of four, because a person waits for the result.
        with Client(base_url=login.base_url, max_retries=2, **credential) as client:
            yield client
    except ApiError as error:
        raise _failure_of(error, login) from None
    except ConnectionFailed as error:
        raise Failure(
            f"{login.base_url} does not respond ({error}): check the address, and that the service runs.",
            ExitCode.TRY_LATER,
        ) from None
    except QuartermasterError as error:
        raise Failure(str(error)) from None


def find_active_organization() -> UUID | None:
    """Return the caller's active organization, the default of `--organization`, or None if DATABASE_URL is set."""
    # Over a database no organization is active, so the caller has to name one.
    if is_database_configured():
        return None
    # Without a remote login, the target is an installation of `make up`. Its credentials file contains the id of the
    # first organization, so no request is needed.
    if find_remote_login() is None:
        found = find_home_organization()
    else:
        with service() as client:
            found = client.raw.request("GET", "/admin/me")["activeOrganizationId"]
    return UUID(found) if found else None


def require_active(organization_id: UUID) -> None:
    """Raise Failure unless the organization is active, because usage routes report only on the active organization."""
    if organization_id != find_active_organization():
        raise Failure(
            "Over REST, usage is available for the active organization only: omit --organization.",
            ExitCode.WRONG_USAGE,
        )


def _failure_of(error: ApiError, login: Login) -> Failure:
    from quartermaster.errors import RateLimited, ServerError, Unauthenticated

    fields = "".join(f" {at.name} {at.message}." for at in error.errors)
    remedy = f" {_REMEDIES[error.code]}" if error.code in _REMEDIES else ""
    code = ExitCode.FAILED
    if isinstance(error, Unauthenticated):
        code = ExitCode.NOT_SIGNED_IN
        remedy = f" {_credential_remedy(login)}"
    # Exclude final errors: if the service forbids a retry, a retry would fail in the same way.
    elif isinstance(error, (RateLimited, ServerError)) and not error.is_final:
        code = ExitCode.TRY_LATER
    return Failure(f"{error.code}: {error.message}{fields}{remedy}", code)


def _credential_remedy(login: Login) -> str:
    """Return advice about a credential that the service refuses. The advice depends on the credential's source."""
    if not login.source:
        return "Nothing was stored."  # `quartermaster login` tries a credential before it stores it
    if login.source == ENVIRONMENT:
        # Do not advise a new login: the environment has precedence, so a login would change nothing.
        return "Correct or unset SERVICE_API_KEY, or SERVICE_CLIENT_ID and SERVICE_CLIENT_SECRET."
    return f"It comes from {login.source}: run `quartermaster login {login.base_url}`."
