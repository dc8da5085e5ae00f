"""Run a deployment's own program: its checkout, a version of that commit, a secret while it runs, and restarts.

The secret ends by itself some minutes after nobody extends it any more: so a run that is killed leaves none, nor one
whose database was away when it ended.
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

SECRET_LIFE = timedelta(minutes=10)
EXTENSION_SECONDS = 60.0
HEALTH_SECONDS = 10.0
HEALTH_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run, where, and what of our environment the program gets."""

    deployment_id: UUID
    checkout: Path | None
    server: str
    health_url: str | None
    environment: Mapping[str, str] = field(repr=False)
    command: tuple[str, ...]


class AgentProgram:
    """One run, from the checkout to the end of its secret."""

    def __init__(self, database: Database, settings: Settings, plan: Plan) -> None:
        self._database = database
        self._settings = settings
        self._plan = plan
        self._supervisor = Supervisor()
        self._health: str | None = None

    def run(self) -> None:
        """Run the program until somebody asks to stop it. Raises CheckoutFailed, and the errors of identity."""
        self._supervisor.listen()
        with self._checked_out() as directory, self._secret(describe(directory)) as issued:
            self._supervisor.start(self._program(directory, issued))
            extending = PeriodicThread(
                partial(self._extend, issued),
                name="secret-extension",
                pause_seconds=EXTENSION_SECONDS,
                starts_with_pause=True,
            )
            watching = PeriodicThread(self._look, name="health", pause_seconds=HEALTH_SECONDS)
            extending.start()
            if self._plan.health_url is not None:
                watching.start()
            try:
                self._supervisor.run()
            except Interrupted:
                self._supervisor.say("stopping")
            finally:
                watching.stop()
                extending.stop()
                self._supervisor.stop_all()

    @contextmanager
    def _checked_out(self) -> Iterator[Path]:
        """Give the directory to run in, which goes with the run unless it is somebody's own."""
        if self._plan.checkout is not None:
            with self._database.transaction() as session:
                get_deployment(session, actor=OPERATOR, deployment_id=self._plan.deployment_id)
            yield self._plan.checkout
            return
        with self._database.transaction() as session:
            repository = get_repository(session, actor=OPERATOR, deployment_id=self._plan.deployment_id)
        with tempfile.TemporaryDirectory(prefix="quartermaster-") as made:
            self._supervisor.say(
                f"fetching {repository.repository} at {repository.ref or 'its default branch'}"
            )
            fetch(self._plan.server, repository.repository, repository.ref, Path(made))
            yield Path(made)

    @contextmanager
    def _secret(self, commit: str) -> Iterator[IssuedClientCredential]:
        """Record the commit as a version, and issue a secret that is revoked at the end of the block."""
        deployment_id = self._plan.deployment_id
        with self._database.transaction() as session:
            version = deploy_version(session, actor=OPERATOR, deployment_id=deployment_id, label=commit)
            issued = issue_client_credential(
                session,
                actor=OPERATOR,
                deployment_id=deployment_id,
                expires_at=datetime.now(UTC) + SECRET_LIFE,
            )
        self._supervisor.say(f"version {version.number} is {commit}")
        try:
            yield issued
        finally:
            self._revoke(issued)

    def _revoke(self, issued: IssuedClientCredential) -> None:
        try:
            with self._database.transaction() as session:
                revoke_client_credential(session, actor=OPERATOR, credential_id=issued.credential.id)
        except DomainError as error:
            self._supervisor.say(f"the secret was not revoked and ends within ten minutes: {error.detail}")

    def _extend(self, issued: IssuedClientCredential) -> None:
        with self._database.transaction() as session:
            extend_client_credential(session, credential_id=issued.credential.id, life=SECRET_LIFE)

    def _program(self, directory: Path, issued: IssuedClientCredential) -> Program:
        ours = {
            "SERVICE_BASE_URL": self._settings.base_url,
            "SERVICE_CLIENT_ID": str(issued.credential.client_id),
            "SERVICE_CLIENT_SECRET": issued.secret.value,
        }
        return Program(
            name="agent",
            command=self._plan.command,
            environment={**self._plan.environment, **ours},
            directory=directory,
        )

    def _look(self) -> None:
        """Say when the program begins to be well, or ceases."""
        try:
            answer = requests.get(self._plan.health_url or "", timeout=HEALTH_TIMEOUT_SECONDS)
            health = "healthy" if answer.ok else f"not healthy: status {answer.status_code}"
        except requests.RequestException as error:
            health = f"not healthy: {type(error).__name__}"
        if health != self._health:
            self._health = health
            self._supervisor.say(f"agent is {health}")
