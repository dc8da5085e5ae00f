"""Build a turn from the row of its claim (`sql/read_claimed_turn.sql`). The turn's history is read on demand."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from shared.a2a.agents.callers import CHANNEL, Daemon, OnBehalf, make_agent_caller
from shared.a2a.agents.directory import read_behavior
from shared.a2a.errors import UnsupportedOperation
from shared.a2a.exact_json import parse
from shared.a2a.file_links import FileLinks
from shared.a2a.tasks.artifacts import fold, read_artifact_events
from shared.a2a.tasks.events import TaskKey
from shared.a2a.types import Artifact, Message, MessageRole
from shared.a2a.updates import Turn
from shared.db.database import Database
from shared.identity.access.callers import Caller, Owner, OwnerKind
from shared.identity.access.effective_permissions import identity_permissions
from shared.identity.tokens.usage_attribution import Attribution

HISTORY_LIMIT = 200
HISTORY_BYTES = 16 << 20


def read_turn(database: Database, links: FileLinks, row: Any) -> Turn:
    """Return the turn in the row of a claim, for a behavior. Raises AgentUnavailable, UnsupportedOperation."""
    # The outer join found no behavior, so the behavior was deleted.
    if row.kind is None:
        raise UnsupportedOperation("The behavior that should answer has been deleted.")
    document = parse(row.said)
    # Test the text first, because this is cheap and most messages contain no file.
    if links.may_contain_files(row.said):
        document = links.with_links(row.task_id, document)
    message = Message.model_validate(document)
    request = parse(row.request)
    caller, attribution = _caller(row, message, channel=request.get("channel", CHANNEL))
    return Turn(
        id=row.id,
        lease_id=row.lease_id,
        task_id=row.task_id,
        context_id=row.context_id,
        message=message,
        is_first=row.message == 1,
        history=partial(_read_history, database, row),
        request_metadata=request.get("metadata", {}),
        accepted_output_modes=tuple(request.get("acceptedOutputModes", ())),
        active_extensions=frozenset(row.active_extensions),
        organization_id=row.organization_id,
        deployment_id=row.deployment_id,
        behavior=read_behavior(row, row.behavior_id, parse(row.extensions)),
        caller=caller,
        attribution=attribution,
    )


def task_of(row: Any) -> TaskKey:
    """Return the key of a claimed turn's task."""
    return TaskKey(id=row.task_id, context_id=row.context_id, organization_id=row.organization_id)


def _caller(row: Any, message: Message, *, channel: str) -> tuple[Caller, Attribution]:
    on_behalf = OnBehalf(
        owner_id=row.owner_id,
        payer_id=row.payer_id,
        distribution_id=row.distribution_id,
        transaction_id=row.transaction_id,
        reported_caller=parse(row.reported_caller) if row.reported_caller is not None else None,
        channel=channel,
    )
    daemon = None
    # A suspended organization disables all of its agents.
    if row.daemon_id is not None and row.suspended_at is None:
        daemon = Daemon(
            id=row.daemon_id,
            organization_id=row.organization_id,
            version_id=row.version_id,
            permissions=identity_permissions(row.bindings),
        )
    owner = None
    if row.owner_kind is not None:
        kind = OwnerKind(row.owner_kind)
        owner = Owner(kind=kind, id=row.owner_id, organization_id=row.owner_organization)
    return make_agent_caller(row.deployment_id, daemon, owner, on_behalf, message_id=message.message_id)


def _read_history(database: Database, turn: Any) -> tuple[Message, ...]:
    """Return the earlier messages of the turn's context: task by task, oldest first.

    The text artifacts of a task follow the task's last message, as a message of the agent. The result contains the
    newest messages up to the limits `HISTORY_LIMIT` and `HISTORY_BYTES`.
    """
    values = {
        "task_id": turn.task_id,
        "number": turn.message,
        "caller_id": turn.caller_id,
        "principal_id": turn.principal_id,
        "deployment_id": turn.deployment_id,
        "context_id": turn.context_id,
        "began_at": turn.began_at,
        "limit": HISTORY_LIMIT,
        "bytes": HISTORY_BYTES,
    }
    with database.autocommit() as session:
        rows = session.fetch_all(_HISTORY, values)
        artifacts_by_task = {row.id: _read_artifacts(row.artifacts) for row in rows if row.is_last}
        if turn.last_sequence:
            artifacts_by_task[turn.task_id] = fold(read_artifact_events(session, turn.task_id))
    return tuple(_with_artifacts(rows, artifacts_by_task, turn.context_id))


def _with_artifacts(
    rows: Sequence[Any], artifacts_by_task: Mapping[UUID, Sequence[Artifact]], context_id: str
) -> Iterator[Message]:
    for row in rows:
        yield Message.model_validate(parse(row.message))
        if not row.is_last:
            continue
        parts = tuple(part for artifact in artifacts_by_task[row.id] for part in artifact.parts if part.text)
        if parts:
            yield Message(
                message_id=f"{row.id}-artifacts", role=MessageRole.AGENT, parts=parts, context_id=context_id
            )


def _read_artifacts(stored: str | None) -> tuple[Artifact, ...]:
    return tuple(Artifact.model_validate(artifact) for artifact in parse(stored)) if stored else ()


# Sizes are summed up from the newest message to the oldest. The row of a task's last message has the task's artifacts.
# A context may have any number of tasks, so the query finds the newest tasks by `ix_tasks_history`. The turn's own task
# may have no earlier message.
_HISTORY = """
SELECT id, message, is_last, CASE WHEN is_last THEN artifacts END AS artifacts FROM (
    SELECT newest.id, newest.created_at, newest.artifacts, said.number, said.message,
        sum(octet_length(said.message)) OVER newest_first AS so_far,
        lag(newest.id) OVER newest_first IS DISTINCT FROM newest.id AS is_last
    FROM (
        SELECT id, created_at, artifacts FROM tasks
        WHERE caller_id = %(caller_id)s AND principal_id = %(principal_id)s
            AND deployment_id = %(deployment_id)s AND context_id = %(context_id)s
            AND created_at <= %(began_at)s AND (created_at < %(began_at)s OR id = %(task_id)s)
        ORDER BY created_at DESC, id DESC LIMIT %(limit)s + 1
    ) newest CROSS JOIN LATERAL (
        SELECT number, message FROM task_messages
        WHERE task_id = newest.id AND (newest.id <> %(task_id)s OR number < %(number)s)
        ORDER BY number DESC LIMIT %(limit)s
    ) said
    WINDOW newest_first AS (ORDER BY newest.created_at DESC, newest.id DESC, said.number DESC)
    ORDER BY newest.created_at DESC, newest.id DESC, said.number DESC LIMIT %(limit)s
) read
WHERE so_far <= %(bytes)s ORDER BY created_at, id, number
"""
