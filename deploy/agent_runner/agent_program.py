"""Run a deployment's agent program: check out its repository, record a version, issue a client secret, and supervise.

The run extends the client secret every minute. The secret expires ten minutes after the last extension. So no secret
stays valid if the run is killed, or if the run cannot reach the database to revoke the secret.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import UUID

import requests

from deploy.agent_runner.git_checkout import describe, fetch
from deploy.supervision.child_processes import Program
from deploy.supervision.supervisor import Interrupted, Supervisor
from shared.config.settings import Settings
from shared.db.database import Database
from shared.errors import DomainError
from shared.identity.access.authorization import OPERATOR
from shared.identity.credentials.client_credentials import (
    IssuedClientCredential,
    extend_client_credential,
    issue_client_credential,
    revoke_client_credential,
)
from shared.identity.directory.deployments import get_deployment
from shared.identity.directory.repositories import get_repository
from shared.identity.directory.versions import deploy_version
from shared.runtime.periodic_thread import PeriodicThread

SECRET_TTL = timedelta(minutes=10)
# Extend after a tenth of the lifetime, so that the secret survives a database outage of nine minutes.
EXTENSION_SECONDS = 60.0
HEALTH_CHECK_SECONDS = 10.0
HEALTH_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The parameters of a run: the deployment, the command, the checkout or git server, and the environment."""

    deployment_id: UUID
    checkout: Path | None
    server: str
    health_url: str | None
    environment: Mapping[str, str] = field(repr=False)
    command: tuple[str, ...]


class AgentProgram:
    """One run of an agent program, from the checkout to the revocation of its client secret."""

    def __init__(self, database: Database, settings: Settings, plan: Plan) -> None:
        self._database = database
        self._settings = settings
        self._plan = plan
        self._supervisor = Supervisor()
        self._health: str | None = None

    def run(self) -> None:
        """Run the program until this process receives a stop signal. Restart the program each time it ends.

        Raises CheckoutFailed, or a DomainError if the deployment or its repository does not exist.
        """
        self._supervisor.install_signal_handlers()
        with self._checked_out() as directory, self._secret(describe(directory)) as issued:
            self._supervisor.start(self._program(directory, issued))
            extending = PeriodicThread(
                partial(self._extend, issued),
                name="secret-extension",
                pause_seconds=EXTENSION_SECONDS,
                starts_with_pause=True,
            )
            watching = PeriodicThread(self._check_health, name="health", pause_seconds=HEALTH_CHECK_SECONDS)
            extending.start()
            if self._plan.health_url is not None:
                watching.start()
            try:
                self._supervisor.run()
            except Interrupted:
                self._supervisor.log("stopping")
            finally:
                watching.stop()
                extending.stop()
                self._supervisor.stop_all()

    @contextmanager
    def _checked_out(self) -> Iterator[Path]:
        """Yield the program's directory: the given checkout, or a temporary checkout that the block's end deletes."""
        if self._plan.checkout is not None:
            with self._database.transaction() as session:
                get_deployment(session, actor=OPERATOR, deployment_id=self._plan.deployment_id)
            yield self._plan.checkout
            return
        with self._database.transaction() as session:
            repository = get_repository(session, actor=OPERATOR, deployment_id=self._plan.deployment_id)
        with tempfile.TemporaryDirectory(prefix="quartermaster-") as directory:
            self._supervisor.log(
                f"fetching {repository.repository} at {repository.ref or 'its default branch'}"
            )
            fetch(self._plan.server, repository.repository, repository.ref, Path(directory))
            yield Path(directory)

    @contextmanager
    def _secret(self, commit: str) -> Iterator[IssuedClientCredential]:
        """Record the commit as a version, and yield a client secret that is revoked after the block."""
        deployment_id = self._plan.deployment_id
        with self._database.transaction() as session:
            # Use one transaction, so that no version is recorded if no secret can be issued.
            version = deploy_version(session, actor=OPERATOR, deployment_id=deployment_id, label=commit)
            issued = issue_client_credential(
                session,
                actor=OPERATOR,
                deployment_id=deployment_id,
                expires_at=datetime.now(UTC) + SECRET_TTL,
            )
        self._supervisor.log(f"version {version.number} is {commit}")
        try:
            yield issued
        finally:
            self._revoke(issued)

    def _revoke(self, issued: IssuedClientCredential) -> None:
        try:
            with self._database.transaction() as session:
                revoke_client_credential(session, actor=OPERATOR, credential_id=issued.credential.id)
        # Only log the error: the secret expires by itself, and raising would hide the error that ended the run.
        except DomainError as error:
            self._supervisor.log(
                f"could not revoke the client secret, which expires within ten minutes: {error.detail}"
            )

    def _extend(self, issued: IssuedClientCredential) -> None:
        with self._database.transaction() as session:
            extend_client_credential(session, credential_id=issued.credential.id, life=SECRET_TTL)

    def _program(self, directory: Path, issued: IssuedClientCredential) -> Program:
        service_variables = {
            "SERVICE_BASE_URL": self._settings.base_url,
            "SERVICE_CLIENT_ID": str(issued.credential.client_id),
            "SERVICE_CLIENT_SECRET": issued.secret.value,
        }
        return Program(
            name="agent",
            command=self._plan.command,
            environment={**self._plan.environment, **service_variables},
            directory=directory,
        )

    def _check_health(self) -> None:
        """Request the health URL, and log if the program's health has changed."""
        try:
            response = requests.get(self._plan.health_url or "", timeout=HEALTH_TIMEOUT_SECONDS)
            health = "healthy" if response.ok else f"not healthy: status {response.status_code}"
        except requests.RequestException as error:
            health = f"not healthy: {type(error).__name__}"
        # Log only changes: a line for each check would hide the output of the program.
        if health != self._health:
            self._health = health
            self._supervisor.log(f"agent is {health}")
