"""Files, models and agents by the `quartermaster` command alone, on the service's host and from another machine."""

import json
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from deploy.cli.main import main
from deploy.embedded import home
from tests.journeys.conftest import Installation
from tests.support.agents.rest_clients import open_link
from tests.support.processes.stack import Stack

OURS = (
    *("DATABASE_URL", "QM_HOME", "XDG_CONFIG_HOME"),
    *("SERVICE_BASE_URL", "SERVICE_API_KEY", "SERVICE_CLIENT_ID", "SERVICE_CLIENT_SECRET"),
)


class Person:
    """Runs commands in this process, with only these environment variables."""

    def __init__(self, directory: Path, **environment: str) -> None:
        self.directory = directory
        self.environment: dict[str, str | None] = {
            **dict.fromkeys(OURS),
            "XDG_CONFIG_HOME": str(directory),
            **environment,
        }

    def run(self, *words: object, given: str | bytes | None = None, status: int = 0) -> Result:
        result = CliRunner().invoke(
            main, [*map(str, words)], input=given, env=self.environment, catch_exceptions=False
        )
        assert result.exit_code == status, result.output
        return result

    def tell(self, *words: object, given: str | bytes | None = None) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.run(*words, given=given).stdout)
        return told


@pytest.fixture(scope="module")
def working(stack: Stack) -> Iterator[Stack]:
    with stack.running(stack.worker("files"), stack.worker("models"), stack.worker("agents")):
        yield stack


@pytest.fixture
def beside(working: Stack, tmp_path: Path) -> Person:
    """A person on the host of a service in QM_HOME, without other configuration."""
    return Person(tmp_path, QM_HOME=str(working.directory))


@pytest.fixture
def afar(working: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Person:
    """A person on another machine, where no service runs."""
    monkeypatch.setattr(home, "DEFAULT", tmp_path / "nothing")
    return Person(tmp_path)


def test_file_is_stored_shared_fetched_replaced_and_deleted(
    beside: Person, installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "report.txt"
    report.write_text("the first report")
    stored = beside.tell("files", "put", report, "--expires-at", "2999-01-01T00:00:00Z")
    assert stored["metadata"]["fileName"] == "report.txt"
    link = beside.tell("files", "share", stored["id"], "--minutes", 5)
    assert open_link(link["url"], via=installation.front.url).content == b"the first report"

    replaced = beside.tell("files", "put", "-", "--replace", stored["id"], "--name", "b.txt", given=b"second")
    assert (replaced["revision"], replaced["id"]) == (2, stored["id"])
    assert beside.run("files", "get", stored["id"], "-").stdout_bytes == b"second"
    first = tmp_path / "first.txt"
    beside.run("files", "get", stored["id"], first, "--version", stored["versionId"])
    assert first.read_text() == "the first report"
    monkeypatch.chdir(tmp_path)
    assert beside.tell("files", "get", stored["id"])["path"] == "b.txt"
    assert "already exists" in beside.run("files", "get", stored["id"], status=1).stderr

    assert beside.tell("files", "ls", "--name", "b")["files"][0]["id"] == stored["id"]
    assert beside.tell("files", "show", stored["id"])["revision"] == 2
    beside.run("files", "renew", stored["id"], status=2)
    renewed = beside.tell("files", "renew", stored["id"], "--for-ever")
    assert renewed["metadata"]["retentionExpiresAt"] is None
    assert beside.tell("files", "rm", stored["id"])["files"][0]["id"] == stored["id"]
    assert open_link(link["url"], via=installation.front.url).status_code == 410
    gone = beside.run("files", "get", stored["id"], tmp_path / "gone", status=1)
    assert gone.stderr.startswith("Error: file_deleted: ")
    assert not (tmp_path / "gone").exists()


def test_model_reply_is_streamed_and_followed_by_its_cost(beside: Person) -> None:
    assert "scripted/echo" in {at["id"] for at in beside.tell("models", "ls")["data"]}
    asked = beside.run("models", "ask", "scripted/echo", "hello there")
    assert asked.stdout == "You said: hello there\n"
    assert "input tokens" in asked.stderr
    assert "credits" in asked.stderr
    assert beside.run("models", "ask", "scripted/echo", given="piped in").stdout == "You said: piped in\n"
    whole = beside.tell("models", "ask", "scripted/echo", "hello", "--json")
    assert (whole["object"], whole["status"]) == ("response", "completed")
    assert beside.run("models", "ask", "no/such", "hello", status=1).stderr.startswith(
        "Error: model_not_found"
    )


def test_agent_is_listed_and_replies(beside: Person) -> None:
    (agent,) = beside.tell("agents", "ls")["agents"]
    for name in (agent["deploymentId"], "default"):
        assert "good morning" in beside.run("agents", "talk", name, "good morning").stdout
    events = beside.run("agents", "talk", "default", "again", "--json").stdout
    assert "TASK_STATE_COMPLETED" in events
    task_id = re.search(r'"taskId": "([^"]+)"', events)
    assert task_id
    over = beside.run("agents", "cancel", "default", task_id[1], status=1)
    assert "The task has ended" in over.stderr


@contextmanager
def asker(afar: Person, installation: Installation, *steps: str) -> Iterator[str]:
    """Sign in, and create an agent that follows these steps."""
    afar.tell("login", installation.front.url, given=f"{installation.credentials['ownerApiKey']}\n")
    script = afar.directory / "script.yaml"
    script.write_text(f"rules:\n  - steps: [{', '.join(steps)}]\n")
    deployment: str = afar.tell("deployments", "create", "--name", "Asker")["id"]
    try:
        told = ("--deployment", deployment, "--name", "ask", "--description", "Asks", "--script", script)
        afar.tell("behaviors", "create", "--kind", "script", *told)
        yield deployment
    finally:
        afar.tell("deployments", "disable", deployment)


def test_waiting_task_is_canceled(afar: Person, installation: Installation) -> None:
    with asker(afar, installation, "{input_required: 'Which one?'}", "{echo: complete}") as agent:
        asked = afar.run("agents", "talk", agent, "report", "--json").stdout
        task_id = re.search(r'"taskId": "([^"]+)"', asked)
        assert task_id
        canceled = afar.tell("agents", "cancel", agent, task_id[1])
        assert canceled["status"]["state"] == "TASK_STATE_CANCELED"


def test_conversation_continues_with_the_task_that_needs_input(
    afar: Person, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = ("{input_required: 'Which one?'}", "{auth_required: 'Who are you?'}", "{echo: complete}")
    with asker(afar, installation, *steps) as agent, monkeypatch.context() as at_a_terminal:
        at_a_terminal.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
        said = afar.run("agents", "talk", agent, "--json", given="report\nthis one\nit is me\n").stdout
        assert len(set(re.findall(r'"taskId": "([^"]+)"', said))) == 1
        assert "TASK_STATE_COMPLETED" in said


def test_notifications_of_a_distribution_are_shown(beside: Person, installation: Installation) -> None:
    distribution = installation.credentials["distribution"]["id"]
    assert beside.run("listen", distribution, "--past", "--seconds", 0).stdout == ""


def test_login_is_verified_stored_for_its_owner_alone_and_deleted(
    afar: Person, installation: Installation
) -> None:
    url, credentials = installation.front.url, installation.credentials
    assert afar.run("files", "ls", status=3).stderr.startswith("Error: Not signed in")
    refused = afar.run("login", url, given="svk_wrong\n", status=3)
    assert refused.stderr.startswith("Error: invalid_token: ")
    afar.run("login", "http://127.0.0.1:9", given="svk_x\n", status=4)

    path = afar.directory / "quartermaster" / "login.json"
    assert not path.exists()
    signed_in = afar.tell("login", f"{url}/", given=f"{credentials['ownerApiKey']}\n")
    assert (signed_in["isOperator"], signed_in["source"]) == (True, str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert credentials["ownerApiKey"] not in json.dumps(signed_in)
    assert afar.tell("whoami") == signed_in
    assert_it_administers(afar, credentials)
    assert "owner_required" in afar.run("files", "put", __file__, status=1).stderr

    deployment = credentials["deployment"]
    afar.tell("login", url, "--client-id", deployment["clientId"], given=f"{deployment['clientSecret']}\n")
    stored = afar.tell("files", "put", __file__)
    assert afar.tell("files", "rm", stored["id"], "--yes")
    assert afar.tell("whoami")["isOperator"] is True
    assert [afar.tell("logout")["loggedOut"] for _ in range(2)] == [True, False]
    afar.run("whoami", status=3)


def assert_it_administers(afar: Person, credentials: dict[str, Any]) -> None:
    """Check that a remote person can manage their organization, without an option that names it."""
    told = afar.tell("organizations", "show", credentials["organizationId"])
    assert told["id"] == credentials["organizationId"]
    assert credentials["deployment"]["id"] in {
        at["id"] for at in afar.tell("deployments", "list")["deployments"]
    }
    assert afar.tell("credits", "show")["policy"]
    assert afar.tell("usage", "--window", "7d", "--interval", "day")["total"]["invocations"] >= 0
    assert afar.tell("usage-records", "list", "--limit", 1)["usageRecords"] is not None
    assert afar.tell("tasks", "list")["tasks"] is not None
    other = afar.run("usage", "--organization", uuid4(), status=2)
    assert "active organization only" in other.stderr
    assert "web" in afar.tell("status", "--json")["processes"]
    findings = {at["subject"]: at["state"] for at in afar.tell("doctor", "--json")["findings"]}
    assert {findings[name] for name in ("transport", "clock", "database", "blobs", "credential")} == {"ok"}


def test_environment_wins_and_credential_is_sent_to_its_own_address_alone(
    afar: Person, installation: Installation
) -> None:
    key = installation.credentials["ownerApiKey"]
    afar.tell("login", installation.front.url, given=f"{key}\n")
    afar.environment["SERVICE_BASE_URL"] = f"{installation.front.url}/"
    alone = afar.run("whoami", status=3)
    assert "There is no credential" in alone.stderr
    afar.environment["SERVICE_API_KEY"] = key
    assert afar.tell("whoami")["source"] == "the environment"
    assert afar.run("files", "show", uuid4(), status=1).stderr.startswith("Error: file_not_found")
