"""`quartermaster run`: the program's client secret is valid only while it runs, for every end of the run."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest
from cryptography.fernet import Fernet
from sqlalchemy import text

from deploy.embedded.valkey import EmbeddedValkey
from shared.db.database import Database
from shared.identity.access.authorization import OPERATOR
from shared.identity.credentials.client_credentials import extend_client_credential
from shared.identity.directory.deployments import DeploymentKind, create_deployment
from shared.identity.directory.repositories import RepositoryDraft, put_repository
from tests.support.data.identity import IdentityFactory, make_settings
from tests.support.processes.stack import wait_until

PROGRAM = """
import json, os, pathlib, sys, time
pathlib.Path(sys.argv[1]).write_text(json.dumps({"environment": dict(os.environ), "pid": os.getpid()}))
time.sleep(600)
"""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A GitHub deployment with a repository in a local directory."""

    database: Database
    environment: dict[str, str]
    deployment_id: UUID
    client_id: UUID
    server: Path
    told: Path

    @contextmanager
    def running(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from deploy.cli.main import main; main()",
                "run",
                "--deployment",
                str(self.deployment_id),
                *options,
                "--",
                sys.executable,
                "agent.py",
                str(self.told),
            ],
            env={**os.environ, **self.environment, "PASSED": "yes"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait(60)
            if process.stdout is not None:
                process.stdout.close()

    def program(self) -> Any:
        """Wait until the program has written its report, and return it."""
        wait_until(lambda: self.told.exists() and self.told.read_text(), "the program runs")
        return json.loads(self.told.read_text())

    def ask(self, query: str) -> list[Any]:
        with self.database.autocommit() as session:
            return list(session.execute(text(query), {"id": self.deployment_id}))

    def live_secrets(self) -> int:
        query = "SELECT FROM client_credentials WHERE deployment_id = :id AND revoked_at IS NULL"
        return len(self.ask(query + " AND expires_at IS NOT NULL AND NOT is_of_workflows"))


def git(directory: Path, *arguments: str) -> str:
    author = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org"}
    committer = {"GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org"}
    done = subprocess.run(
        ["git", "-C", str(directory), *arguments],
        env={**os.environ, **author, **committer},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def bench(
    database_url: str,
    database: Database,
    valkey_server: EmbeddedValkey,
    tmp_path: Path,
) -> Bench:
    source = tmp_path / "acme" / "reporter.git"
    source.mkdir(parents=True)
    git(source, "init", "--quiet", "--initial-branch=main")
    (source / "agent.py").write_text(PROGRAM)
    git(source, "add", ".")
    git(source, "commit", "--quiet", "--message=First")
    organization = IdentityFactory(database, make_settings()).organization("Acme").id
    with database.transaction() as session:
        made = create_deployment(
            session, actor=OPERATOR, organization_id=organization, kind=DeploymentKind.GITHUB, name="Reporter"
        ).deployment
        draft = RepositoryDraft(repository="acme/reporter", ref="main")
        put_repository(session, actor=OPERATOR, deployment_id=made.id, draft=draft)
    return Bench(
        database=database,
        environment={
            "DATABASE_URL": database_url,
            "REDIS_URL": valkey_server.url,
            "BLOB_STORE": (tmp_path / "blobs").as_uri(),
            "BASE_URL": "http://localhost:8080",
            "ENCRYPTION_KEYS": Fernet.generate_key().decode(),
        },
        deployment_id=made.id,
        client_id=made.client_id,
        server=tmp_path,
        told=tmp_path / "told",
    )


def test_a_program_runs_at_its_commit_with_a_secret_of_its_own(bench: Bench) -> None:
    with bench.running("--server", bench.server.as_uri(), "--pass", "PASSED") as process:
        told = bench.program()
        environment = told["environment"]
        assert environment["SERVICE_CLIENT_ID"] == str(bench.client_id)
        assert environment["SERVICE_CLIENT_SECRET"].startswith("svs_")
        assert environment["SERVICE_BASE_URL"] == "http://localhost:8080"
        assert environment["PASSED"] == "yes"
        assert environment.keys().isdisjoint({"DATABASE_URL", "REDIS_URL", "BLOB_STORE"})
        commit = git(bench.server / "acme" / "reporter.git", "rev-parse", "HEAD")
        newest = "SELECT label FROM versions WHERE deployment_id = :id ORDER BY number DESC LIMIT 1"
        assert bench.ask(newest)[0].label == commit
        assert bench.live_secrets() == 1
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert environment["SERVICE_CLIENT_SECRET"] not in output
    assert bench.live_secrets() == 0
    assert not psutil.pid_exists(told["pid"])


def test_a_program_that_ends_is_started_again(bench: Bench) -> None:
    with bench.running("--server", bench.server.as_uri()):
        first = bench.program()
        bench.told.unlink()
        os.kill(first["pid"], signal.SIGKILL)
        again = bench.program()
    assert again["pid"] != first["pid"]
    assert again["environment"]["SERVICE_CLIENT_SECRET"] == first["environment"]["SERVICE_CLIENT_SECRET"]


def test_killed_run_ends_its_program_and_its_secret_expires(bench: Bench) -> None:
    with bench.running("--server", bench.server.as_uri()) as process:
        told = bench.program()
        process.kill()
        process.wait(60)
    wait_until(lambda: not psutil.pid_exists(told["pid"]), "the program ends")
    query = "SELECT id, expires_at - now() < interval '11 minutes' AS ends FROM client_credentials"
    (left,) = bench.ask(
        query + " WHERE deployment_id = :id AND expires_at IS NOT NULL AND revoked_at IS NULL"
    )
    assert left.ends


def test_a_secret_is_extended_unless_it_was_revoked(bench: Bench) -> None:
    with bench.running("--server", bench.server.as_uri()):
        bench.program()
        query = "SELECT id, expires_at FROM client_credentials WHERE deployment_id = :id AND expires_at IS NOT NULL"
        (before,) = bench.ask(query)
        with bench.database.transaction() as session:
            from_now = before.expires_at - before.expires_at.now(before.expires_at.tzinfo)
            extend_client_credential(session, credential_id=before.id, life=2 * from_now)
        (after,) = bench.ask(query)
        assert after.expires_at > before.expires_at


def test_a_local_checkout_with_changes_is_recorded_as_such(bench: Bench) -> None:
    checkout = bench.server / "acme" / "reporter.git"
    (checkout / "agent.py").write_text(PROGRAM + "# changed\n")
    with bench.running("--checkout", str(checkout)):
        bench.program()
        newest = "SELECT label FROM versions WHERE deployment_id = :id ORDER BY number DESC LIMIT 1"
        assert bench.ask(newest)[0].label.endswith(" with changes")


def test_health_is_told_when_it_changes(bench: Bench) -> None:
    with bench.running(
        "--server", bench.server.as_uri(), "--health-url", "http://127.0.0.1:9/healthz"
    ) as process:
        bench.program()
        assert process.stdout is not None
        line = next(line for line in process.stdout if "healthy" in line)
    assert "agent is not healthy: ConnectionError" in line


def test_a_repository_that_cannot_be_fetched_ends_the_run(bench: Bench) -> None:
    with bench.running("--server", (bench.server / "nowhere").as_uri()) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "git fetch failed" in output
    assert bench.live_secrets() == 0
