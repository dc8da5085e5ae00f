"""Find the service and the credential for a command. The order is: the environment, QM_HOME, the saved login.

The variables SERVICE_BASE_URL, SERVICE_API_KEY, SERVICE_CLIENT_ID and SERVICE_CLIENT_SECRET have the same meaning as in
the SDK. A stored credential is sent only to the address with which it was stored. Only the owner of the login's file
can read the file.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from deploy.cli.exit_codes import ExitCode, Failure
from deploy.embedded import home
from deploy.embedded.home import Home, write_privately

BASE_URL, API_KEY = "SERVICE_BASE_URL", "SERVICE_API_KEY"
CLIENT_ID, CLIENT_SECRET = "SERVICE_CLIENT_ID", "SERVICE_CLIENT_SECRET"
DATABASE_IS_CONFIGURED = "quartermaster.database_is_named"
ENVIRONMENT = "the environment"


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The address of a service, with a user's API key, a deployment's credentials, or both."""

    base_url: str
    source: str = ""
    """The file from which the login was read, or the environment. The command `whoami` prints this value."""
    api_key: str | None = field(default=None, repr=False)
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)

    def credential(self, *, prefers_deployment: bool) -> dict[str, str]:
        """Return the credential arguments of the SDK's client.

        If the login has both credentials, `prefers_deployment` selects the deployment's credentials, not the API key.
        Raises Failure if the login has no credential.
        """
        has_deployment = bool(self.client_id and self.client_secret)
        if has_deployment and (prefers_deployment or not self.api_key):
            return {"client_id": str(self.client_id), "client_secret": str(self.client_secret)}
        if self.api_key:
            return {"api_key": self.api_key}
        raise Failure(
            f"There is no credential for {self.base_url}: run `quartermaster login {self.base_url}`.",
            ExitCode.NOT_SIGNED_IN,
        )


def find_login() -> Login:
    """Return the login that this command uses. Raises Failure if no service or no credential is configured."""
    found = find_remote_login() or _of_home(_home())
    if found is None:
        raise Failure(
            "Not signed in: run `quartermaster login ADDRESS`, or start a service here with `make up`.",
            ExitCode.NOT_SIGNED_IN,
        )
    return found


def find_remote_login() -> Login | None:
    """Return the login from the environment or from `quartermaster login`, or None if QM_HOME is the target."""
    if address := _read(BASE_URL):
        return _with_credentials_of_environment(Login(base_url=address.rstrip("/"), source=ENVIRONMENT))
    # QM_HOME has precedence over the saved login: the user set this variable in the present shell.
    if os.environ.get("QM_HOME"):
        return None
    stored = read_login()
    return None if stored is None else _with_credentials_of_environment(stored)


def login_path() -> Path:
    """Return the path of the saved login."""
    return Path(click.get_app_dir("quartermaster")) / "login.json"


def read_login() -> Login | None:
    """Return the saved login, or None if no login is saved. Raises Failure if the login's file is invalid."""
    path = login_path()
    try:
        return Login(**json.loads(path.read_text()), source=str(path))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        raise Failure(f"{path} is not a valid login: run `quartermaster login ADDRESS` again.") from None


def store_login(login: Login) -> None:
    """Replace the saved login. Only the owner of the login's file can read the file."""
    path = login_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Omit the source: it is the path of this file, and read_login() adds the path.
    document = {name: value for name, value in asdict(login).items() if value and name != "source"}
    write_privately(path, json.dumps(document, indent=2) + "\n")


def delete_login() -> bool:
    """Delete the saved login. Return whether a login was saved."""
    try:
        login_path().unlink()
    except FileNotFoundError:
        return False
    return True


def find_home_organization() -> str | None:
    """Return the id of the first organization of the installation in QM_HOME, or None if there is no installation."""
    return _read_credentials(_home()).get("organizationId")


def is_database_configured() -> bool:
    """Return whether the caller set DATABASE_URL. A DATABASE_URL from the settings of QM_HOME does not count."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.find_root().meta.get(DATABASE_IS_CONFIGURED))


def _of_home(kept: Home) -> Login | None:
    """Return the login of the first owner and deployment in QM_HOME, or None if QM_HOME has no credentials."""
    document = _read_credentials(kept)
    if not document:
        return None
    deployment: Mapping[str, str] = document.get("deployment", {})
    login = Login(
        # Prefer the address in the settings, which `make up` writes at every start. The credentials file is written
        # once, so its port may be old.
        base_url=kept.read_settings().get("BASE_URL") or document["baseUrl"],
        source=str(kept.credentials),
        api_key=document["ownerApiKey"],
        client_id=deployment.get("clientId"),
        client_secret=deployment.get("clientSecret"),
    )
    return _with_credentials_of_environment(login)


def _read_credentials(kept: Home) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(kept.credentials.read_text())
    # Without readable credentials there is no login: another account may own ./var, or the first run may not
    # have ended yet.
    except (FileNotFoundError, PermissionError, ValueError):
        return {}
    return document


def _with_credentials_of_environment(login: Login) -> Login:
    """Return the login with the credentials of the environment, or unchanged if the environment has none."""
    # Replace all credentials: an API key from the environment must not be combined with a stored client secret.
    api_key, client_id, client_secret = map(_read, (API_KEY, CLIENT_ID, CLIENT_SECRET))
    if not (api_key or (client_id and client_secret)):
        return login
    return replace(login, api_key=api_key, client_id=client_id, client_secret=client_secret)


def _home() -> Home:
    return Home(Path(os.environ.get("QM_HOME") or home.DEFAULT))


def _read(name: str) -> str | None:
    return os.environ.get(name, "").strip() or None
