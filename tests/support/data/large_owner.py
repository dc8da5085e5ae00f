"""Fill a database with the rows of one large owner, and with as many rows of others.

With ten rows, a list that scans its owner's whole set, or the whole table, is as quick as any other. Each table is
filled with copies of one row that the service wrote. Copies of others' rows lie before, between and after the owner's
in the order of ids and times. A scan of the table in that order, in either direction, therefore finds no page.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import Connection, Table, text

from shared.a2a.schedules.tables import schedule_runs, schedules
from shared.a2a.tables import behaviors, task_push_configurations, tasks
from shared.credits.tables import budgets, invocations, ledger_entries, usage_records
from shared.db.schema import metadata
from shared.deliveries.tables import deliveries
from shared.files.tables import blobs, files, read_grants, references
from shared.files.tables import versions as file_versions
from shared.identity.tables import (
    api_keys,
    audit_events,
    client_credentials,
    deployments,
    distributions,
    identities,
    invitations,
    memberships,
    organizations,
    role_bindings,
    users,
    versions,
)
from shared.media.network_tables import network_accounts
from shared.media.tables import media_imports

COPIES = 1500
NEW_ID = "uuidv7(make_interval(secs => (i::float / :copies - 0.5) * 1000))"
RANDOM = "gen_random_uuid()"
RANDOM_HASH = "sha256(uuid_send(gen_random_uuid()))"
EARLIER = "now() - make_interval(secs => i * 7)"
WIDER = {
    NEW_ID: "uuidv7(make_interval(secs => (i::float / :copies - 0.5) * 3000))",
    EARLIER: "now() - make_interval(secs => (i - :copies / 3) * 21)",
}
"""Of others': over three times as long, a third of them before and a third behind."""
SOMEBODY = "'00000000-0000-4000-8000-00000000beef'::uuid"


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How the rows of one table are multiplied.

    `owner` are the columns that assign a row to the owner, by the path parameter that names the owner; `others` those
    that assign a copy to another one. `changes` are the SQL expressions that differ in every copy, where `i` is its
    number. `others_changes` differ only in copies of others, for values of which others have thousands.
    """

    table: Table
    owner: Mapping[str, str]
    changes: Mapping[str, str] = field(default_factory=lambda: {"id": NEW_ID})
    others: tuple[str, ...] = ()
    others_changes: Mapping[str, str] = field(default_factory=dict)
    copies: int = COPIES


@dataclass(frozen=True, kw_only=True)
class Much:
    """Another number of copies for some tables, and other changes of their columns, by the table's name."""

    copies: Mapping[str, int] = field(default_factory=dict)
    changes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


_AS_DECLARED = Much()
_OF_ORGANIZATION = {"organization_id": "organizationId"}
_OF_DEPLOYMENT = {"deployment_id": "deploymentId"}

GROWTHS = (
    Growth(table=organizations, owner={"id": "organizationId"}),
    Growth(
        table=users, owner={"id": "userId"}, changes={"id": NEW_ID, "email": "'copy-' || i || '@example.org'"}
    ),
    Growth(table=audit_events, owner=_OF_ORGANIZATION),
    Growth(table=invitations, owner=_OF_ORGANIZATION, changes={"id": NEW_ID, "token_hash": RANDOM_HASH}),
    Growth(
        table=api_keys,
        owner={"id": "keyId"},
        changes={"id": NEW_ID, "hash": RANDOM_HASH},
        others=("user_id", "organization_id"),
    ),
    Growth(table=identities, owner=_OF_ORGANIZATION),
    Growth(
        table=role_bindings,
        owner={"id": "bindingId"},
        changes={"id": NEW_ID, "subject_identity_id": RANDOM},
        others=("organization_id",),
    ),
    Growth(
        table=deployments,
        owner=_OF_ORGANIZATION,
        # The oldest enabled row stays first, because it serves the root address.
        changes={
            "id": NEW_ID,
            "client_id": RANDOM,
            "daemon_identity_id": RANDOM,
            "disabled_at": "CASE WHEN i < :copies * 0.6 THEN now() END",
        },
    ),
    Growth(table=versions, owner=_OF_DEPLOYMENT, changes={"id": NEW_ID, "number": "number + i"}),
    Growth(
        table=client_credentials, owner=_OF_DEPLOYMENT, changes={"id": NEW_ID, "secret_hash": RANDOM_HASH}
    ),
    Growth(
        table=distributions,
        owner=_OF_ORGANIZATION,
        changes={"id": NEW_ID, "token_hash": RANDOM_HASH, "deployment_id": RANDOM},
    ),
    Growth(
        table=files,
        owner={"id": "fileId"},
        changes={"id": NEW_ID, "current_version_id": RANDOM},
        others=("organization_id", "owner_id", "payer_id"),
        others_changes={"purpose": "'MessagingMedia'"},
    ),
    Growth(
        table=file_versions, owner={"file_id": "fileId"}, changes={"id": NEW_ID, "revision": "revision + i"}
    ),
    Growth(table=references, owner={"file_id": "fileId"}, changes={"reference_id": "'copy-' || i"}),
    Growth(table=read_grants, owner={"file_id": "fileId"}, changes={"id": NEW_ID, "token_hash": RANDOM_HASH}),
    Growth(
        table=usage_records, owner=_OF_ORGANIZATION, changes={"invocation_id": RANDOM, "occurred_at": EARLIER}
    ),
    Growth(table=invocations, owner=_OF_ORGANIZATION),
    Growth(
        table=ledger_entries,
        owner=_OF_ORGANIZATION,
        changes={"version": "version + i", "reference": "'copy-' || i"},
    ),
    Growth(table=budgets, owner=_OF_ORGANIZATION, changes={"id": NEW_ID, "subject_id": RANDOM}),
    Growth(
        table=media_imports,
        owner={"distribution_id": "distributionId"},
        changes={"id": NEW_ID, "attachment_id": "'copy-' || i"},
        others_changes={
            "state": "'Stored'",
            "file_id": RANDOM,
            "version_id": RANDOM,
            "ended_at": "now()",
            "forget_at": "now()",
            "headers_encrypted": "NULL",
        },
    ),
    Growth(
        table=network_accounts,
        owner={"distribution_id": "distributionId"},
        changes={"id": NEW_ID, "account": "'copy-' || i"},
    ),
    Growth(
        table=deliveries,
        owner={"destination_id": "distributionId"},
        others_changes={"state": "'Delivered'", "body": "NULL", "ended_at": "now()"},
    ),
    Growth(
        table=deliveries,
        owner={"destination_id": "organizationId"},
        others_changes={"state": "'Delivered'", "body": "NULL", "ended_at": "now()"},
    ),
    # A deployment has at most 50 behaviors and 200 schedules: with so few rows the planner takes any index.
    Growth(
        table=behaviors,
        owner=_OF_DEPLOYMENT,
        changes={"id": NEW_ID, "name": "'copy-' || i", "is_default": "false"},
        others_changes={"id": NEW_ID},
        copies=48,
    ),
    Growth(table=schedules, owner=_OF_DEPLOYMENT, others_changes={"id": NEW_ID}, copies=198),
    Growth(
        table=schedule_runs, owner={"schedule_id": "scheduleId"}, changes={"id": NEW_ID, "tick_at": EARLIER}
    ),
    Growth(
        table=tasks,
        owner={"id": "taskId"},
        changes={"id": NEW_ID, "status_at": EARLIER},
        others=("organization_id", "deployment_id", "caller_id", "principal_id"),
        others_changes={"state": "'TASK_STATE_FAILED'"},
    ),
    Growth(
        table=task_push_configurations,
        owner={"task_id": "taskId"},
        changes={"id": "'copy-' || i", "destination_id": RANDOM},
        copies=20,
    ),
)


def fill(
    connection: Connection, resources: Mapping[str, str], organization_id: UUID, much: Much = _AS_DECLARED
) -> None:
    """Multiply the rows of the resources that paths name."""
    # Copies reference rows that do not exist; no list reads these.
    connection.execute(text("SET LOCAL session_replication_role = replica"))
    _write_what_no_route_writes(connection, organization_id, resources["scheduleId"])
    for growth in GROWTHS:
        _grow(connection, growth, resources, much)
    _complete_files(connection, resources, much.changes.get(file_versions.name, {}))
    _note_words(connection)
    _join(connection, resources)
    connection.execute(text("RESET session_replication_role"))


def analyze(connection: Connection) -> None:
    """Update the planner's statistics."""
    for table in metadata.sorted_tables:
        connection.execute(text(f'ANALYZE "{table.name}"'))


def _grow(connection: Connection, growth: Growth, resources: Mapping[str, str], much: Much) -> None:
    found = " AND ".join(f"{column} = '{resources[name]}'" for column, name in growth.owner.items())
    changes = {**growth.changes, **much.changes.get(growth.table.name, {})}
    _copy(connection, growth, found, changes, much.copies.get(growth.table.name, growth.copies))
    others = growth.others or tuple(growth.owner)
    foreign = dict.fromkeys((name for name in others if name not in growth.changes), SOMEBODY)
    shifted = {
        name: WIDER.get(change, change).replace("'copy-'", "'other-'")
        for name, change in growth.changes.items()
    }
    _copy(connection, growth, found, {**shifted, **foreign, **growth.others_changes}, COPIES)


def _copy(
    connection: Connection, growth: Growth, found: str, changes: Mapping[str, str], copies: int
) -> None:
    name = growth.table.name
    columns = [column.name for column in growth.table.columns]
    values = [changes.get(column, f'"{column}"') for column in columns]
    statement = (
        f"INSERT INTO {name} ({', '.join(columns)}) SELECT {', '.join(values)}"
        f" FROM (SELECT * FROM {name} WHERE {found} LIMIT 1) AS one, generate_series(1, :copies) AS i"
    )
    written = connection.execute(text(statement), {"copies": copies}).rowcount
    assert written == copies, f"{name}: no row to copy"


def _complete_files(
    connection: Connection, resources: Mapping[str, str], of_versions: Mapping[str, str]
) -> None:
    """Create the version and the placed blob of each copied file."""
    for table, key, changes in (
        (file_versions, "id", {"id": "files.current_version_id", "file_id": "files.id", **of_versions}),
        (blobs, "version_id", {"version_id": "files.current_version_id", "state": "'live'"}),
    ):
        columns = [column.name for column in table.columns]
        values = [changes.get(column, f"one.{column}") for column in columns]
        connection.execute(
            text(
                f"INSERT INTO {table.name} ({', '.join(columns)}) SELECT {', '.join(values)} FROM files,"
                f" (SELECT * FROM {table.name} WHERE {key} = :version_id) AS one"
                f" WHERE files.current_version_id NOT IN (SELECT {key} FROM {table.name})"
            ),
            {"version_id": resources["fileVersion"]},
        )


def _note_words(connection: Connection) -> None:
    """Index the words of copied files, as the trigger does, which is disabled here."""
    connection.execute(
        text(
            "INSERT INTO file_words SELECT files.id, files_vector(organization_id, owner_id, media_type, file_name)"
            " FROM files JOIN file_versions ON file_versions.id = files.current_version_id ON CONFLICT DO NOTHING"
        )
    )


def _join(connection: Connection, resources: Mapping[str, str]) -> None:
    """Make every user a member of the organization, and the one user a member of every organization."""
    values = {"organization": resources["organizationId"], "user_id": resources["userId"]}
    name = memberships.name
    for one in (
        (
            f"INSERT INTO {name} (organization_id, user_id, role) SELECT :organization, id, 'Member' FROM users"
            " ON CONFLICT DO NOTHING"
        ),
        (
            f"INSERT INTO {name} (organization_id, user_id, role) SELECT id, :user_id, 'WorkspaceOwner'"
            " FROM organizations ON CONFLICT DO NOTHING"
        ),
    ):
        connection.execute(text(one), values)


def _write_what_no_route_writes(connection: Connection, organization_id: UUID, schedule_id: str) -> None:
    values = {"organization_id": organization_id, "schedule_id": schedule_id}
    for statement in (
        (
            "INSERT INTO usage_records (invocation_id, organization_id, model, prompt_tokens, completion_tokens,"
            " cached_tokens, reasoning_tokens, cost, status, is_estimated, user_id, occurred_at)"
            " VALUES (gen_random_uuid(), :organization_id, 'scripted/echo', 1, 1, 0, 0, 0, 'completed', false,"
            " gen_random_uuid(), now())"
        ),
        (
            "INSERT INTO invocations (id, organization_id, hold, model, prompt_price, completion_price,"
            " estimated_prompt_tokens, lease_until)"
            " VALUES (uuidv7(), :organization_id, 1, 'scripted/echo', 0, 0, 1, now() + interval '1 hour')"
        ),
        (
            "INSERT INTO ledger_entries (organization_id, version, kind, reference, amount, balance_after, occurred_at)"
            " VALUES (:organization_id, 1000, 'top_up', 'first', 1, 1, now())"
        ),
        (
            "INSERT INTO deliveries (id, kind, event, destination_id, organization_id, content_type, body,"
            " in_flight_limit, attempt_limit, state, ended_at) VALUES (uuidv7(), 'organization', 'test',"
            " :organization_id, :organization_id, 'application/json', '', 4, 9, 'Dead', now())"
        ),
        (
            "INSERT INTO schedule_runs (id, schedule_id, tick_at, state, passed_over)"
            " VALUES (uuidv7(), :schedule_id, now(), 'skipped', 0)"
        ),
    ):
        connection.execute(text(statement), values)
