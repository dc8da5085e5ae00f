"""A worker of agents that runs the turn a test chooses; real workers take the next one."""

from collections.abc import Mapping
from uuid import UUID, uuid4

from shared.a2a.agent_turns.execution import TurnExecution
from shared.a2a.agent_turns.heartbeats import TurnHeartbeats
from shared.a2a.agent_turns.task_log import TaskLog
from shared.a2a.behavior_registry import Behaviors
from shared.a2a.file_links import FileLinks
from shared.a2a.tasks.claimed_turns import ClaimedTurn
from shared.a2a.tasks.task_notifier import TaskNotifier
from shared.a2a.turn_state.leases import (
    LEASE_SECONDS,
    Lease,
    TurnLeases,
    claim_and_read_statement,
    claim_statement,
)
from shared.a2a.updates import Behavior, BehaviorKind
from shared.config.settings import Settings
from shared.db.database import Database

_LEASE = claim_and_read_statement(
    claim_statement(
        """SELECT id, payer_id AS tenant, deployment_id AS member FROM task_turns
        WHERE id = :turn_id AND state = 'queued' AND is_next FOR UPDATE"""
    )
)


class ClaimingLog(TaskLog):
    """A task log that also leases the turn it begins."""

    def __init__(self, database: Database, notifier: TaskNotifier, links: FileLinks) -> None:
        super().__init__(database, notifier, links)
        self.database = database

    def lease(self, turn_id: UUID) -> Lease | None:
        """Lease this turn, or return None if a worker could not."""
        values = {"lease_id": uuid4(), "turn_id": turn_id, "seconds": LEASE_SECONDS}
        with self.database.autocommit() as session:
            row = session.fetch_one(_LEASE, values)
        return Lease.of(row) if row is not None else None

    def claim(self, turn_id: UUID) -> ClaimedTurn | None:
        """Begin this turn, or return None if a worker could not."""
        lease = self.lease(turn_id)
        return self.begin(lease) if lease is not None else None


class TellableExecution(TurnExecution):
    """Runs the turns that a test chooses, one at a time."""

    def __init__(
        self, task_log: ClaimingLog, watch: TurnHeartbeats, behaviors: Mapping[BehaviorKind, Behavior]
    ) -> None:
        super().__init__(task_log, watch, behaviors)
        self._claiming = task_log

    def answer_turn(self, turn_id: UUID) -> None:
        """Run this turn if it is pending."""
        lease = self._claiming.lease(turn_id)
        if lease is not None:
            self.answer(lease)


def make_execution(
    database: Database, notifier: TaskNotifier, behaviors: Behaviors, settings: Settings
) -> tuple[ClaimingLog, TurnLeases, TurnHeartbeats, TellableExecution]:
    """Return such a worker and its parts."""
    log = ClaimingLog(database, notifier, FileLinks(database, settings))
    leases = TurnLeases(database)
    watch = TurnHeartbeats(leases, turn_seconds=settings.a2a_turn_seconds)
    return log, leases, watch, TellableExecution(log, watch, behaviors.by_kind)
