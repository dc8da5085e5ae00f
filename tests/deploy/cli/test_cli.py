"""The `quartermaster` command as a process: the first run despite crashes, and administration."""

import json
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from cryptography.fernet import Fernet

from deploy.embedded.postgres import EmbeddedPostgres
from deploy.embedded.valkey import EmbeddedValkey
from tests.support.processes.command_line import CommandLine
from tests.support.web.web_process import Front, open_front

DYING_BEFORE_THE_COMMIT = """
import os
from deploy.cli import first_run
write = first_run._write_durably
first_run._write_durably = lambda *arguments: (write(*arguments), os._exit(9))
"""
DYING_AFTER_THE_COMMIT = """
import os
from deploy.cli import first_run
first_run._publish = lambda *arguments: os._exit(9)
"""


@pytest.fixture
def environment(
    postgres_server: EmbeddedPostgres, migrated_template: str, valkey_server: EmbeddedValkey, tmp_path: Path
) -> dict[str, str]:
    """Return the settings of an installation before its first run."""
    return {
        "DATABASE_URL": postgres_server.create_database(f"test_{uuid4().hex}", template=migrated_template),
        "REDIS_URL": valkey_server.url,
        "BLOB_STORE": (tmp_path / "blobs").as_uri(),
        "BASE_URL": "http://localhost",
        "ENCRYPTION_KEYS": Fernet.generate_key().decode(),
    }


def run(environment: Mapping[str, str], *arguments: str, prepare: str = "", status: int = 0) -> str:
    """Run the command; return its output, or its error output if it is expected to fail."""
    ended, output, complaint = CommandLine(environment, *arguments, prepare=prepare).finish()
    assert ended == status, output + complaint
    return complaint if status else output


def tell(environment: Mapping[str, str], *arguments: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(run(environment, *arguments))
    return told


@contextmanager
def opened(environment: Mapping[str, str], tmp_path: Path) -> Iterator[Front]:
    """Open a web process of the installation."""
    addresses = environment["DATABASE_URL"], environment["REDIS_URL"]
    keys = (environment["ENCRYPTION_KEYS"],)
    with open_front(*addresses, tmp_path / "blobs", encryption_keys=keys) as front:
        yield front


def assert_credentials_work(environment: Mapping[str, str], path: Path, tmp_path: Path) -> None:
    credentials = json.loads(path.read_text())
    with opened(environment, tmp_path) as front:
        me = front.get("/admin/me", f"Bearer {credentials['ownerApiKey']}").get_json()
        assert me["isOperator"] is True
        assert me["activeOrganizationId"] == credentials["organizationId"]
        funds = front.get("/v1/credits", f"Bearer {credentials['ownerApiKey']}").get_json()
        assert funds["balance"] == "1000"
        assert_a_request_is_routed(front, credentials["deployment"], credentials["distribution"])


def assert_a_request_is_routed(
    front: Front, deployment: Mapping[str, str], distribution: Mapping[str, str]
) -> None:
    form = {
        "grant_type": "client_credentials",
        "client_id": deployment["clientId"],
        "client_secret": deployment["clientSecret"],
    }
    token = front.post("/oauth/token", data=form).get_json()["access_token"]
    minted = front.post("/oauth/attributions", f"Bearer {distribution['token']}", json={}).get_json()
    headers = {"Service-Usage-Attribution": minted["attribution"]}
    assert front.get("/files", f"Bearer {token}", headers=headers).status_code == 200


def test_the_first_run_hands_over_working_credentials_and_later_ones_nothing(
    environment: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "home" / "credentials.json"
    output = run(environment, "bootstrap", "--credentials", str(path))
    credentials = json.loads(path.read_text())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert str(path) in output
    secrets = re.findall(r"(?:sv[a-z]|whsec)_[A-Za-z0-9+/=]{20,}", path.read_text())
    assert len(secrets) == 4
    # The output of the first run ends up in logs.
    assert not any(secret in output for secret in secrets)
    assert set(credentials) == {"baseUrl", "organizationId", "ownerApiKey", "deployment", "distribution"}
    assert set(credentials["deployment"]) == {"id", "clientId", "clientSecret", "daemonIdentityId"}
    assert set(credentials["distribution"]) == {"id", "token", "webhookSecret", "principalIdentityId"}
    assert_credentials_work(environment, path, tmp_path)
    assert run(environment, "bootstrap", "--credentials", str(path)) == ""
    assert json.loads(path.read_text()) == credentials
    assert [entry.name for entry in path.parent.iterdir()] == ["credentials.json"]


@pytest.mark.parametrize("dying", [DYING_BEFORE_THE_COMMIT, DYING_AFTER_THE_COMMIT], ids=["before", "after"])
def test_a_first_run_that_dies_around_its_commit_loses_no_credentials(
    environment: dict[str, str], tmp_path: Path, dying: str
) -> None:
    path = tmp_path / "credentials.json"
    run(environment, "bootstrap", "--credentials", str(path), prepare=dying, status=9)
    assert not path.exists()
    run(environment, "bootstrap", "--credentials", str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert_credentials_work(environment, path, tmp_path)
    assert not path.with_name("credentials.json.draft").exists()


def test_of_two_first_runs_at_once_one_sets_up(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    both = [CommandLine(environment, "bootstrap", "--credentials", str(path)) for _ in range(2)]
    ended = [command.finish() for command in both]
    assert [status for status, _, _ in ended] == [0, 0], ended
    # Only the command that set up the installation prints where the credentials are.
    assert sorted(bool(output) for _, output, _ in ended) == [False, True]
    assert_credentials_work(environment, path, tmp_path)


def test_credentials_of_another_installation_are_kept(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    path.write_text("those of another database")
    run(environment, "bootstrap", "--credentials", str(path))
    assert_credentials_work(environment, path, tmp_path)
    assert path.with_name("credentials.json.earlier").read_text() == "those of another database"


def test_an_operator_sets_up_an_organization_from_the_command_line(
    environment: dict[str, str], tmp_path: Path
) -> None:
    user = tell(environment, "users", "create", "--email", "ada@example.org")
    organization = tell(environment, "organizations", "create", "--name", "Acme", "--owner", user["id"])
    inside = ("--organization", organization["id"])
    key = tell(environment, "api-keys", "issue", "--user", user["id"], "--name", "First")
    deployment = tell(environment, "deployments", "create", *inside, "--name", "Agent")
    principal = tell(environment, "identities", "create", *inside, "--name", "Mailbox")
    distribution = tell(
        environment,
        *("distributions", "create", *inside, "--name", "Slack", "--network", "slack"),
        *("--principal-identity", principal["id"], "--deployment", deployment["id"]),
    )
    with opened(environment, tmp_path) as front:
        assert_a_request_is_routed(front, deployment, distribution)
        shown = front.get(f"/admin/deployments/{deployment['id']}", f"Bearer {key['apiKey']}").get_json()
    assert shown.items() <= deployment.items(), "the same JSON as over HTTP"
    disabled = tell(environment, "deployments", "disable", deployment["id"])
    assert disabled["disabledAt"]
    listed = tell(environment, "deployments", "list", *inside)
    assert listed == {"deployments": [disabled], "nextCursor": None}
    acts = tell(environment, "audit-events", "list", *inside, "--limit", "1")["auditEvents"]
    assert [(act["action"], act["actorKind"]) for act in acts] == [("deployment.disabled", "Operator")]


def test_a_refusal_is_one_line_and_a_status(environment: dict[str, str]) -> None:
    complaint = run(environment, "organizations", "show", str(uuid4()), status=1)
    assert complaint.startswith("Error: not_found: ")
    assert complaint.count("\n") == 1
    wrong = run(environment, "users", "create", "--email", "nobody", status=1)
    assert wrong == (
        "Error: validation_failed: The request is well formed, but a value in it is wrong. "
        "email must be an e-mail address.\n"
    )
    early = run(environment, "rotate-keys", status=1)
    assert early.startswith("Error: signing_key_not_published: ")


def test_missing_settings_are_named(environment: dict[str, str]) -> None:
    complaint = run(environment | {"DATABASE_URL": "", "ENCRYPTION_KEYS": ""}, "users", "list", status=1)
    first, second = complaint.splitlines()
    assert first.startswith("Error: DATABASE_URL is missing. Set it (deploy/environment.example")
    assert second.startswith("ENCRYPTION_KEYS is missing.")
