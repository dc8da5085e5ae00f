"""One installation in one process: the web process, every worker's handlers, a worker of models, and users."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import psycopg2
import pytest

from deploy.cli.consistency_checks import DeepCheckOptions, check_content, check_ledger
from deploy.cli.health_report import State as Found
from shared.a2a.agent_turns.execution import TurnExecution
from shared.a2a.tasks.task_notifier import TaskNotifier
from shared.a2a.turn_state.leases import TurnLeases
from shared.credits.ledger import top_up
from shared.db.database import Database
from shared.errors import ServiceUnavailable
from shared.files.blobs.local import LocalBlobStore
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.directory.deployments import CreatedDeployment
from shared.observability.telemetry import JOBS
from tests.shared.models.model_calls import ModelCalls
from tests.support.data.inventory import list_disagreeing_rows
from tests.support.data.media_sources import MediaSource
from tests.support.files.file_requests import Asker, stored_names
from tests.support.networks.slack import SlackStandIn
from tests.support.processes.bound_worker import BoundWorker
from tests.support.web.web_process import Front
from tests.web.files.conftest import agent_of, promote

_LEASES_END = """
UPDATE blobs SET lease_until = now() - interval '1 s' WHERE lease_until > now();
UPDATE invocations SET lease_until = now() - interval '1 s' WHERE lease_until > now();
UPDATE task_turns SET lease_until = now() - interval '1 s' WHERE lease_until > now();
UPDATE media_imports SET due_at = now() WHERE state IN ('Queued', 'Fetching') AND due_at > now();
"""
TO_THE_END = (
    *("files.place_staged", "files.expire_due", "files.collect_doomed", "files.sweep_staging"),
    *("credits.release_overdue_holds", "credits.settle_unresolved", "credits.roll_up_usage"),
)
"""The jobs that finish all pending work."""


@dataclass(frozen=True, kw_only=True)
class World:
    """The environment of flows. `agent` stores files and may delete them; `owner` and `operator` administer."""

    front: Front
    worker: BoundWorker
    calls: ModelCalls
    organization_id: UUID
    deployment: CreatedDeployment
    agent: Asker
    owner: str
    operator: str
    link: Any
    """A connection whose commits are not recorded."""
    later: Database
    """The same database, two hours later."""
    asked: list[str]
    """The ids of the calls that were sent to providers."""
    source: MediaSource
    slack: SlackStandIn
    notifier: TaskNotifier
    leases: TurnLeases
    turns: TurnExecution
    made: dict[Any, Any] = field(default_factory=dict)
    told_too_soon: list[UUID]
    """The calls whose end was reported before they were settled."""

    @property
    def database(self) -> Database:
        return self.front.services.database

    def run(self, kinds: Collection[str]) -> None:
        """Run jobs as if their messages had just arrived. A job that fails unexpectedly fails the test."""
        for kind in kinds:
            failures = JOBS.labels(kind, "failed")._value.get()
            self.worker.run(kind)
            assert JOBS.labels(kind, "failed")._value.get() == failures, f"{kind} failed"

    def sql(self, statement: str, **values: object) -> list[Any]:
        """Run a statement over the connection that is not recorded. Return its rows."""
        with self.link.cursor() as cursor:
            cursor.execute(statement, {name: str(value) for name, value in values.items()})
            return cursor.fetchall() if cursor.description else []

    def expire_leases(self) -> None:
        """Expire the leases of workers and web processes that died."""
        self.sql(_LEASES_END)

    def answer_turn(self) -> None:
        """Run the next pending turn, if there is one, as a worker of agents does."""
        with suppress(ServiceUnavailable):  # The worker tries again.
            lease = self.leases.take()
            if lease is not None:
                self.turns.answer(lease)

    def once(self, make: Callable[[World], Any]) -> Any:
        """Return what is created once for all runs."""
        if make not in self.made:
            self.made[make] = make(self)
        return self.made[make]

    def with_own_agent(self) -> World:
        """Return the same environment with an agent of its own, which no other flow uses."""
        deployment = self.front.identity.deployment(self.organization_id)
        promote(self.front, deployment)
        return replace(self, deployment=deployment, agent=agent_of(self.front, deployment))

    def recording_uploads(self, is_wanted: bool) -> Any:
        """Make the store record uploads before they begin, within the block, as S3 does."""
        return _recording() if is_wanted else nullcontext()

    def held(self) -> int:
        """Return the credits in holds of the organization that makes model calls."""
        return int(self.calls.balance.held)

    def faults(self) -> list[str]:
        """Finish all pending work, and list every disagreement of rows, stored bytes and the ledger."""
        self.expire_leases()
        self.run(TO_THE_END)
        self.expire_leases()
        self.run(TO_THE_END)
        store = self.front.services.blobs
        depth = DeepCheckOptions(sample=10_000)
        found = [*check_content(self.database, store, depth), *check_ledger(self.database)]
        faults = [f"{at.subject}: {at.detail}" for at in found if at.state is not Found.OK]
        faults += list_disagreeing_rows(self.link)
        states = dict(self.sql("SELECT version_id::text, state FROM blobs"))
        faults += [f"leaked bytes: {name}" for name in stored_names(self.front) - states.keys()]
        still = self.sql("SELECT id FROM invocations WHERE state IN ('held', 'dispatched', 'unresolved')")
        faults += [f"told before it was settled: {at}" for at in self.told_too_soon]
        return faults + [f"credits are still held for {row[0]}" for row in still]


@contextmanager
def _recording() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setattr(LocalBlobStore, "records_before_receiving", True)
    try:
        yield
    finally:
        patch.undo()


def make_world(front: Front, worker: BoundWorker, calls: ModelCalls, **parts: Any) -> World:
    """Create an organization and its users."""
    identity = front.identity
    organization_id = identity.organization().id
    deployment = identity.deployment(organization_id)
    promote(front, deployment)
    with front.services.database.transaction() as session:
        top_up(session, organization_id=organization_id, amount=1_000_000, reference="proof", actor=OPERATOR)
    link = psycopg2.connect(front.settings.database_url.replace("+psycopg2", ""))
    link.autocommit = True
    return World(
        front=front,
        worker=worker,
        calls=calls,
        organization_id=organization_id,
        deployment=deployment,
        agent=agent_of(front, deployment),
        owner=identity.person(organization_id, Role.WORKSPACE_OWNER).authorization,
        operator=identity.operator().authorization,
        link=link,
        **parts,
    )
