"""One scenario that uses every administrative command; a command that it omits fails the test."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import click
import pytest
from click.testing import CliRunner
from cryptography.fernet import Fernet
from sqlalchemy import func, text, update

from deploy.cli.main import main
from deploy.cli.rest.rest_operations import OPERATIONS
from deploy.embedded.valkey import EmbeddedValkey
from shared.db.database import Database
from shared.deliveries.outbox import enqueue_delivery, give_up
from shared.files.metering.storage_charges import accrue_storage
from shared.files.metering.storage_prices import StoragePrice
from shared.identity.tables import signing_keys
from shared.identity.tokens.key_rotation import ensure_keys
from shared.ids import new_id
from shared.media.attachments import Attachment
from shared.media.importing.import_queue import queue_imports
from tests.support.data.identity import make_settings

# Other tests cover these.
PROCESSES = {"web", "worker", "beat", "migrate", "bootstrap", "run", "doctor", "status", "celery"}
# These read files, or use REST (tests/journeys/test_people_commands.py).
PEOPLE = {"models", "completion", "login", "logout", "whoami", "files", "agents", "listen"}

# Over REST only members of the organization may run these, and this operator is a member of none.
OF_MEMBERS = {"usage", "usage-records list", "read-grants list", "read-grants revoke", "tasks list"}


class Operator:
    """Runs commands in this process, and records their names."""

    def __init__(self, environment: dict[str, str], database: Database, directory: Path) -> None:
        self.environment = environment
        self.afar: dict[str, str | None] = {}
        self.database = database
        self.directory = directory
        self.ran: set[tuple[str, ...]] = set()

    def do(self, *words: str, **options: object) -> dict[str, Any]:
        """Run a command with arguments and options by name; return the JSON that it prints."""
        self.ran.add(words[:1] if words[0] in ("rotate-keys", "reencrypt") else words[:2])
        arguments = [*words]
        for name, value in options.items():
            arguments += [f"--{name.replace('_', '-')}", str(value)]
        is_far = self.afar and {" ".join(words[:2]), words[0]} & (OPERATIONS.keys() - OF_MEMBERS)
        environment = self.afar if is_far else self.environment
        result = CliRunner().invoke(main, arguments, env=environment, catch_exceptions=False)
        assert result.exit_code == 0, f"{words}: {result.output}"
        printed: dict[str, Any] = json.loads(result.output) if result.output else {}
        return printed

    def write(self, document: object) -> Path:
        """Write a JSON file for a command, and return its path."""
        path = self.directory / f"{uuid4().hex}.json"
        path.write_text(json.dumps(document))
        return path


def make_operator(database_url: str, database: Database, valkey: EmbeddedValkey, directory: Path) -> Operator:
    """Create an operator of an installation with its own signing keys."""
    key = Fernet.generate_key().decode()
    ensure_keys(database, make_settings(encryption_keys=(key,)))
    return Operator(
        {
            "DATABASE_URL": database_url,
            "REDIS_URL": valkey.url,
            "BLOB_STORE": (directory / "blobs").as_uri(),
            "ENCRYPTION_KEYS": key,
            "PAYMENT_SOURCES": json.dumps({"shop": {"kind": "stripe", "secrets": ["whsec_of_the_shop"]}}),
        },
        database,
        directory,
    )


@pytest.fixture
def operator(
    database_url: str, database: Database, valkey_server: EmbeddedValkey, tmp_path: Path
) -> Operator:
    return make_operator(database_url, database, valkey_server, tmp_path)


def measure_wrongly(database: Database, organization_id: str, *, stored_bytes: int) -> None:
    """Insert a row of a day with stored bytes that do not exist."""
    statement = text(
        "INSERT INTO storage_days (organization_id, day, stored_bytes, byte_microseconds)"
        " SELECT :id, (measured_to AT TIME ZONE 'UTC')::date, :bytes, 0 FROM storage_mark"
    )
    with database.transaction() as session:
        session.execute(statement, {"id": organization_id, "bytes": stored_bytes})


def administer_credits(do: Callable[..., Any], inside: dict[str, str]) -> None:
    assert do("credits", "show", **inside)["balance"] == "0"
    entry = do("credits", "top-up", **inside, amount="12.5", reference="first")
    assert (entry["balanceAfter"], entry["replayed"]) == ("12.5", False)
    assert do("credits", "top-up", **inside, amount="12.5", reference="first") == entry | {"replayed": True}
    assert do("credits", "adjust", **inside, amount="-2", reference="mistake")["balanceAfter"] == "10.5"
    (month,) = do("credits", "list-statements", **inside)["statements"]
    assert (month["opening"], month["closing"]) == ("0", "10.5")
    statement = do("credits", "show-statement", **inside, month=month["month"])
    assert [line["amount"] for line in statement["lines"][:2]] == ["12.5", "-2"]
    entries = do("credits", "list-entries", **inside, limit=1)
    assert ([at["amount"] for at in entries["entries"]], entries["nextCursor"]) == (["-2"], "2")
    assert do("credits", "list-holds", **inside) == {"holds": [], "nextCursor": None}
    limited = do("credits", "set-policy", **inside, policy="limit", spending_limit="3.5")
    assert (limited["available"], limited["spendingLimit"]) == ("3.5", "3.5")
    assert do("credits", "suspend", **inside)["suspendedBy"] == ["operator"]
    resumed = do("credits", "resume", **inside)
    assert (resumed["policy"], resumed["suspendedBy"]) == ("limit", [])


def administer_budgets(do: Callable[..., Any], inside: dict[str, str], key_id: str) -> None:
    subject = {"subject_kind": "api_key", "subject": key_id}
    budget = do("budgets", "create", **inside, **subject, period="month", amount="2.5")
    assert (budget["amount"], budget["remaining"], budget["unit"]) == ("2.5", "2.5", "credits")
    assert do("budgets", "list", **inside)["budgets"] == [budget]
    assert do("budgets", "show", budget["id"], **inside) == budget
    assert do("budgets", "set-amount", budget["id"], **inside, amount="3")["amount"] == "3"
    assert do("budgets", "delete", budget["id"], **inside) == {}
    assert do("budgets", "set-models", **inside, key=key_id, model="acme/one") == {"models": ["acme/one"]}
    assert do("budgets", "show-models", **inside, key=key_id) == {"models": ["acme/one"]}
    assert do("budgets", "remove-models", **inside, key=key_id) == {}


def invite_somebody(do: Callable[..., Any], inside: dict[str, str]) -> None:
    invitation = do("invitations", "create", **inside, email=f"{uuid4().hex}@example.org", role="Member")
    assert invitation.pop("token").startswith("svi_")
    assert do("invitations", "show", invitation["id"]) == invitation
    assert do("invitations", "list", **inside)["invitations"] == [invitation]
    assert do("invitations", "revoke", invitation["id"])["revokedAt"]


def administer_repository(do: Callable[..., Any], inside: dict[str, str]) -> None:
    deployment = do("deployments", "create", **inside, name="Reporter", kind="GitHub")["id"]
    repository = do("repositories", "set", deployment, repository="acme/reporter", ref="main")
    assert (repository["repository"], repository["ref"]) == ("acme/reporter", "refs/heads/main")
    assert do("repositories", "show", deployment) == repository
    assert do("repositories", "remove", deployment) == {}


def enter_payment(operator: Operator, inside: dict[str, str]) -> None:
    metadata = {"organization_id": inside["organization"], "credits": "1"}
    paid = {"type": "payment_intent.succeeded", "data": {"object": {"id": "pi_1", "metadata": metadata}}}
    event = str(operator.write(paid))
    assert operator.do("credits", "enter-payment", event, source="shop") == {"result": "credited"}
    assert operator.do("credits", "enter-payment", event, source="shop") == {"result": "repeated"}


def administer_endpoint(operator: Operator, deployment: str) -> None:
    secret = operator.directory / "credential"
    secret.write_text("k" * 40)
    told = {"url": "https://agent.example", "credential_header": "X-API-Key", "credential_file": secret}
    endpoint = operator.do("endpoints", "set", deployment, **told)
    assert (endpoint["credentialHeader"], "k" * 40 in str(endpoint)) == ("X-API-Key", False)
    assert operator.do("endpoints", "show", deployment) == endpoint
    operator.do("endpoints", "set", deployment, url="https://localhost")
    with pytest.raises(AssertionError, match=r"public (internet|address)|isUsable"):
        operator.do("endpoints", "check", deployment)
    assert operator.do("endpoints", "remove", deployment) == {}


def administer_users(do: Callable[..., Any]) -> dict[str, Any]:
    user = do("users", "create", email=f"{uuid4().hex}@example.org")
    assert do("users", "show", user["id"]) == user
    assert user in do("users", "list")["users"]
    assert do("users", "disable", user["id"])["disabledAt"]
    assert do("users", "enable", user["id"]) == user
    assert "/console/in#svl_" in do("console", "link", user=user["email"])["link"]
    assert do("console", "sign-out", user=user["email"]) == {"sessions": 0}
    made: dict[str, Any] = user
    return made


def test_every_administrative_command_does_its_work(operator: Operator) -> None:
    tell_the_story(operator)


def tell_the_story(operator: Operator) -> None:
    """Run every administrative command."""
    database = operator.database
    do = operator.do
    user = administer_users(do)
    organization = do("organizations", "create", name="Acme", owner=user["id"])
    inside = {"organization": organization["id"]}
    assert do("organizations", "rename", organization["id"], name="Emca")["name"] == "Emca"
    assert do("organizations", "show", organization["id"])["name"] == "Emca"
    assert len(do("organizations", "list", limit=1)["organizations"]) == 1
    assert do("organizations", "suspend", organization["id"])["suspendedAt"]
    assert do("organizations", "resume", organization["id"])["suspendedAt"] is None

    administer_credits(do, inside)
    notify_organization(operator, inside)
    enter_payment(operator, inside)
    accrue_storage(database, price=StoragePrice(amount=1_000_000), grace=timedelta(days=14))
    measure_wrongly(database, organization["id"], stored_bytes=10)
    stored = do("credits", "list-storage", **inside, window="7d")
    assert (stored["storedBytes"], stored["cost"]) == (10, "0")
    assert (stored["days"][0]["storedBytes"], stored["days"][0]["cost"]) == (10, None)
    of_month = do("credits", "list-storage", **inside, month=f"{datetime.now(UTC):%Y-%m}", group_by="owner")
    assert (of_month["window"], of_month["groupBy"], of_month["cost"]) == (None, "owner", "0")
    assert do("credits", "recount-storage") == {"organizations": 0}
    used = do("usage", **inside, window="7d", interval="day", group_by="principal")
    assert (used["total"]["cost"], used["groups"], used["isTruncated"]) == ("0", [], False)
    recent = {"model": "acme/one", "status": "failed", "from": "2026-01-01T00:00:00Z"}
    assert do("usage-records", "list", **inside, **recent) == {"usageRecords": [], "nextCursor": None}
    assert do("credits", "prove") == {"discrepancies": [], "mismeasured": []}

    member = do("members", "add", **inside, email=f"{uuid4().hex}@example.org", role="Member")
    changed = do("members", "change-role", **inside, user=member["userId"], role="WorkspaceAdmin")
    assert changed in do("members", "list", **inside)["members"]

    invite_somebody(do, inside)
    key = do("api-keys", "issue", **inside, user=user["id"], name="Key", expires_at="2999-01-01T00:00:00Z")
    assert key["expiresAt"] == "2999-01-01T00:00:00Z"
    shown = do("api-keys", "show", key["id"])
    assert shown.items() < key.items()
    assert do("api-keys", "list", user=user["id"])["apiKeys"] == [shown]
    assert do("api-keys", "list-bound", **inside)["apiKeys"] == [shown]
    administer_budgets(do, inside, key["id"])
    assert do("api-keys", "revoke", key["id"])["revokedAt"]

    look_after_agents(operator, inside, member["userId"])

    do("members", "remove", **inside, user=member["userId"])
    assert do("audit-events", "list", **inside)["auditEvents"][0]["action"] == "member.removed"

    with database.transaction() as session:
        session.execute(update(signing_keys).values(created_at=func.now() - func.make_interval(0, 0, 0, 1)))
    do("rotate-keys")
    keys = do("signing-keys", "list")["signingKeys"]
    do("signing-keys", "revoke", keys[0]["kid"])
    assert keys[0] not in do("signing-keys", "list")["signingKeys"]
    assert do("reencrypt") == {"renewed": 0, "unreadable": []}

    assert operator.ran == administrative_commands()


def test_a_signing_keys_id_that_begins_with_a_hyphen_is_an_id(operator: Operator) -> None:
    result = CliRunner().invoke(
        main, ["signing-keys", "revoke", "-nothing-"], env=operator.environment, catch_exceptions=False
    )
    assert (result.exit_code, "The resource does not exist" in result.output) == (1, True), result.output


def look_after_agents(operator: Operator, inside: dict[str, str], user_id: str) -> None:
    take_back_a_link(operator, inside["organization"])
    do = operator.do
    principal = do("identities", "create", **inside, name="Mailbox")
    assert do("identities", "show", principal["id"]) == principal
    assert do("identities", "disable", principal["id"])["disabledAt"]
    assert do("identities", "enable", principal["id"]) == principal

    deployment = do("deployments", "create", **inside, name="Agent", kind="GitHub", label="first")
    daemon = deployment["daemonIdentityId"]
    assert {entry["id"] for entry in do("identities", "list", **inside)["identities"]} == {
        principal["id"],
        daemon,
    }
    assert do("deployments", "show", deployment["id"]).items() < deployment.items()
    assert len(do("deployments", "list", **inside)["deployments"]) == 1
    assert do("deployments", "disable", deployment["id"])["disabledAt"]
    assert do("deployments", "enable", deployment["id"])["disabledAt"] is None

    of_deployment = {"deployment": deployment["id"]}
    version = do("versions", "deploy", **of_deployment, label="second")
    assert do("versions", "show", version["id"]) == version
    first = do("versions", "list", **of_deployment)["versions"][0]
    assert do("versions", "activate", first["id"]) == first
    assert do("versions", "revoke", version["id"])["revokedAt"]

    told = {"description": "Helps.", "model": "scripted/echo"}
    behavior = do("behaviors", "create", **of_deployment, name="Helper", **told)
    other = do("behaviors", "create", **of_deployment, name="Other", **told)
    assert do("behaviors", "show", behavior["id"]) == behavior
    assert do("behaviors", "make-default", other["id"])["isDefault"]
    do("behaviors", "remove", behavior["id"])
    assert [at["id"] for at in do("behaviors", "list", **of_deployment)["behaviors"]] == [other["id"]]
    administer_endpoint(operator, **of_deployment)
    administer_repository(do, inside)

    told = {"name": "Morning", "cron": "0 9 * * *", "text": "Good morning"}
    schedule = do("schedules", "create", **of_deployment, **told, **{"time-zone": "Europe/Berlin"})
    assert do("schedules", "show", schedule["id"], **of_deployment) == schedule
    assert do("schedules", "disable", schedule["id"], **of_deployment)["nextAt"] is None
    assert do("schedules", "enable", schedule["id"], **of_deployment)["nextAt"] == schedule["nextAt"]
    assert do("schedules", "runs", schedule["id"], **of_deployment) == {"runs": [], "nextCursor": None}
    assert do("schedules", "list", **of_deployment)["schedules"] == [schedule]
    do("schedules", "delete", schedule["id"], **of_deployment)
    assert do("schedules", "list", **of_deployment)["schedules"] == []

    change_the_daemon(operator, deployment)
    credential = do("client-credentials", "issue", **of_deployment)
    assert do("client-credentials", "show", credential["id"]).items() < credential.items()
    assert len(do("client-credentials", "list", **of_deployment)["clientCredentials"]) == 2
    assert do("client-credentials", "revoke", credential["id"])["revokedAt"]

    binding = do("role-bindings", "bind-identity", **inside, identity=principal["id"], role="Member")
    assert binding["scopeKind"] == "Organization"
    assert do("role-bindings", "show", binding["id"]) == binding
    of_user = do("role-bindings", "bind-user", **inside, user=user_id, role="ProjectAgent", over=daemon)
    assert of_user in do("role-bindings", "list", **inside)["roleBindings"]
    do("role-bindings", "unbind", binding["id"])

    route_messages(operator, inside, principal["id"], deployment["id"])


def change_the_daemon(operator: Operator, deployment: dict[str, Any]) -> None:
    change, former = ("deployments", "change-daemon", deployment["id"]), deployment["daemonIdentityId"]
    assert operator.do(*change)["daemonIdentityId"] != former
    assert operator.do(*change, identity=former)["daemonIdentityId"] == former


def route_messages(operator: Operator, inside: dict[str, str], principal_id: str, deployment_id: str) -> None:
    do = operator.do
    distribution = do(
        "distributions",
        "create",
        **inside,
        name="Slack",
        network="slack",
        principal_identity=principal_id,
        deployment=deployment_id,
    )
    shown = do("distributions", "show", distribution["id"])
    assert shown.items() < distribution.items()
    assert do("distributions", "list", **inside)["distributions"] == [shown]
    changed = do("distributions", "update", distribution["id"], media_retention_days=7)
    assert changed == shown | {"mediaRetentionDays": 7}
    assert do("distributions", "disable", distribution["id"])["disabledAt"]
    assert do("distributions", "enable", distribution["id"]) == changed
    client = {"clientId": "1.2.3", "clientSecret": "c" * 32}
    given = operator.write({"signingSecret": "s" * 32, "botToken": "xoxb-" + "t" * 32, **client})
    slack = do("networks", "set", distribution["id"], "slack", settings=given)
    assert [(one["name"], one["last4"]) for one in slack["settings"]] == [
        ("botToken", "tttt"),
        ("clientId", ".2.3"),
        ("clientSecret", "cccc"),
        ("signingSecret", "ssss"),
    ]
    assert do("networks", "show", distribution["id"], "slack") == slack
    begun = do("networks", "install", distribution["id"], to=distribution["id"])
    assert begun["authorizeUrl"].startswith("https://slack.com/oauth/v2/authorize?client_id=1.2.3&")
    routed = do("networks", "route", distribution["id"], "slack", "T1", to=distribution["id"])
    assert do("networks", "list-routes", distribution["id"], "slack")["accounts"] == [routed]
    assert do("networks", "unroute", distribution["id"], "slack", "T1") == {}
    assert do("networks", "remove", distribution["id"], "slack") == {}
    notify(operator, distribution["id"])
    assert do("tasks", "list", **inside, deployment=deployment_id) == {"tasks": [], "nextCursor": None}
    rotated = do("distributions", "rotate-token", distribution["id"], overlap_seconds=0)
    last = do("distributions", "show", distribution["id"])["tokenLast4"]
    assert rotated["token"].endswith(last)
    assert do("distributions", "rotate-webhook-secret", distribution["id"])["webhookSecret"].startswith(
        "whsec_"
    )


def give_up_notification(database: Database, distribution_id: UUID) -> UUID:
    """Create a dead notification."""
    with database.transaction() as session:
        notification_id = enqueue_delivery(
            session,
            kind="distribution",
            event="file.expired",
            destination_id=distribution_id,
            organization_id=uuid4(),
            body=b"{}",
        )
        give_up(session, destination_id=distribution_id, code="destination_gone")
    return notification_id


def notify(operator: Operator, distribution_id: str) -> None:
    do = operator.do
    (operator.directory / "url").write_text("https://bot.example/hook?key=secret\n")
    endpoint = do("notifications", "set-endpoint", distribution_id, url_file=operator.directory / "url")
    assert endpoint["url"] == "https://bot.example/hook?key=secret"
    assert do("notifications", "show-endpoint", distribution_id) == endpoint
    given_up = give_up_notification(operator.database, UUID(distribution_id))
    (listed,) = do("notifications", "list", distribution_id, state="Dead")["notifications"]
    assert listed["id"] == str(given_up)
    assert do("notifications", "resend", distribution_id, notification=given_up)["state"] == "Waiting"
    assert do("notifications", "resend-dead", distribution_id) == {"count": 0}
    nothing = {"count": 0, "nextCursor": None}
    assert do("notifications", "replay", distribution_id, since="2026-01-31T12:00:00Z") == nothing
    assert do("notifications", "replay", distribution_id, after=given_up) == nothing
    assert do("notifications", "remove-endpoint", distribution_id) == {}
    retry_imports(operator, distribution_id)


def retry_imports(operator: Operator, distribution_id: str) -> None:
    do = operator.do
    settings = make_settings()
    with operator.database.transaction() as session:
        wanted = Attachment(message_id="m", attachment_id="a", location={"url": "https://media.example/a"})
        queue_imports(
            session, settings, distribution_id=UUID(distribution_id), network="standard", attachments=[wanted]
        )
        session.execute(text("UPDATE media_imports SET state = 'Held', code = 'target_disabled'"))
    (held,) = do("imports", "list", distribution_id, state="Held")["imports"]
    assert do("imports", "show", distribution_id, held["importId"])["code"] == "target_disabled"
    assert do("imports", "retry", distribution_id, held["importId"])["state"] == "Queued"
    assert do("imports", "retry-all", distribution_id, code="target_disabled") == {"count": 0}


def notify_organization(operator: Operator, inside: dict[str, str]) -> None:
    do, organization_id = operator.do, inside["organization"]
    url = operator.directory / "organization-url"
    url.write_text("https://owner.example/hook\n")
    endpoint = do("notifications", "set-organization-endpoint", organization_id, url_file=url)
    assert endpoint.pop("webhookSecret").startswith("whsec_")
    assert do("notifications", "show-organization-endpoint", organization_id) == endpoint
    given_up = give_up_notification(operator.database, UUID(organization_id))
    (listed,) = do("notifications", "list-organization", organization_id, state="Dead")["notifications"]
    assert listed["id"] == str(given_up)
    resent = do("notifications", "resend-organization", organization_id, notification=given_up)
    assert resent["state"] == "Waiting"
    assert do("notifications", "replay-organization", organization_id)["count"] == 0
    assert do("notifications", "remove-organization-endpoint", organization_id) == {}


def take_back_a_link(operator: Operator, organization_id: str) -> None:
    file_id, version_id, grant_id, owner_id = (new_id() for _ in range(4))
    values = {"file": file_id, "version": version_id, "id": grant_id, "owner": owner_id}
    with operator.database.transaction() as session:
        for statement in (_STORE_FILE, _STORE_GRANT):
            session.execute(text(statement), values | {"organization": organization_id})
    (listed,) = operator.do("read-grants", "list", file=file_id)["grants"]
    assert (listed["grantId"], listed["createdBy"], listed["revokedAt"]) == (
        str(grant_id),
        str(owner_id),
        None,
    )
    assert operator.do("blob-store", "show") == {}
    adopted = operator.do("blob-store", "adopt", "--yes")
    assert operator.do("blob-store", "show") == adopted
    operator.environment["SECOND_BLOB_STORE"] = (operator.directory / "moved").as_uri()
    moved = operator.do("blob-store", "move")
    assert (moved["versions"], moved["isComplete"]) == (0, True)
    (other,) = operator.do("blob-store", "show")["others"]
    assert (other["address"], other["isUsed"]) == (str(operator.directory / "moved"), False)
    revoked = operator.do("read-grants", "revoke", str(grant_id), file=file_id)
    assert revoked == listed | {"revokedAt": revoked["revokedAt"]}
    assert revoked["revokedAt"]
    (event, *_) = operator.do("audit-events", "list", organization=organization_id)["auditEvents"]
    assert (event["action"], event["resourceId"]) == ("read_grant.revoked", str(grant_id))


_STORE_FILE = """
INSERT INTO files (id, organization_id, payer_id, purpose, owner_kind, owner_id, state, current_version_id, revision)
VALUES (:file, :organization, :organization, 'AgentArtifact', 'DaemonIdentity', :owner, 'Available', :version, 1)
"""
_STORE_GRANT = """
INSERT INTO read_grants (id, token_hash, file_id, version_id, created_by, access_expires_at)
VALUES (:id, decode(md5(CAST(:id AS text)), 'hex'), :file, :version, :owner, now() + interval '1 hour')
"""


def administrative_commands() -> set[tuple[str, ...]]:
    context = click.Context(main)
    found: set[tuple[str, ...]] = set()
    for name in set(main.list_commands(context)) - PROCESSES - PEOPLE:
        command = main.get_command(context, name)
        inner = sorted(command.commands) if isinstance(command, click.Group) else []
        found |= {(name, verb) for verb in inner} or {(name,)}
    return found
