"""Agents with real tasks in the database of the module; this process runs their turns as a worker would."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import text

from shared.a2a import exact_json
from shared.a2a.agent_turns.heartbeats import TurnHeartbeats
from shared.a2a.agent_turns.lost_turns import sweep_turns
from shared.a2a.agents.directory import Agent, Scope, authorize, get_agent
from shared.a2a.behavior_registry import Behaviors, build_behaviors
from shared.a2a.push.configurations import PushConfigurations
from shared.a2a.tables import behaviors as behavior_rows
from shared.a2a.tasks.cancellation import cancel_task
from shared.a2a.tasks.snapshots import read_snapshot
from shared.a2a.tasks.submission import AcceptedMessage, MessageSubmission, send
from shared.a2a.tasks.task_notifier import TaskNotifier
from shared.a2a.turn_state.leases import TurnLeases
from shared.a2a.types import Message, SendMessageConfiguration, SendMessageRequest, Task
from shared.config.settings import Settings
from shared.credits.balances import Balance
from shared.credits.ledger import top_up
from shared.db.database import Database
from shared.egress.policy import EgressPolicy
from shared.encryption import Encryption
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.callers import Caller
from shared.identity.directory.deployments import CreatedDeployment
from shared.ids import new_id
from shared.messaging.valkey import connect_valkey
from tests.shared.a2a.behaviors.turns import message
from tests.shared.credits.calls import Calls
from tests.support.agents.chosen_turns import ClaimingLog, TellableExecution, make_execution
from tests.support.data.identity import IdentityFactory, make_settings
from tests.support.servers.stores import open_any_store

CREDITS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Agents:
    """One organization, its agent, a caller, and a worker."""

    database: Database
    settings: Settings
    identity: IdentityFactory
    deployment: CreatedDeployment
    caller: Caller
    notifier: TaskNotifier
    leases: TurnLeases
    log: ClaimingLog
    watch: TurnHeartbeats
    execution: TellableExecution
    behaviors: Behaviors

    @property
    def organization_id(self) -> UUID:
        return self.deployment.deployment.organization_id

    @property
    def agent(self) -> Agent:
        with self.database.autocommit() as session:
            return get_agent(session, self.deployment.deployment.id)

    def scope(self, caller: Caller | None = None) -> Scope:
        return authorize(caller or self.caller, self.agent)

    def use_script(self, script: str) -> None:
        """Use this script for the next messages."""
        self._use(kind="script", script=script)

    def use_model(self, model: str, instructions: str = "") -> None:
        """Use this model for the next messages."""
        self._use(kind="model", model=model, instructions=instructions)

    def say(
        self,
        said: Message | str,
        *,
        task: Task | None = None,
        context_id: str | None = None,
        caller: Caller | None = None,
        extensions: Sequence[str] = (),
        accepted: Sequence[str] = (),
    ) -> AcceptedMessage:
        """Send a message without running its turn."""
        told = said if isinstance(said, Message) else message(said)
        told = told.model_copy(update={"task_id": task.id if task else None, "context_id": context_id})
        request = SendMessageRequest(
            message=told, configuration=SendMessageConfiguration(accepted_output_modes=tuple(accepted))
        )
        sending = MessageSubmission(
            request=request,
            agent=self.agent,
            scope=self.scope(caller),
            caller=caller or self.caller,
            active_extensions=extensions,
        )
        policy = EgressPolicy.of(self.settings)
        pushes = PushConfigurations(encryption=Encryption(self.settings), policy=policy)
        with self.database.transaction() as session:
            return send(session, sending, pushes)

    def answer(self, said: Message | str, **how: Any) -> Task:
        """Send a message, run its turn, and return the task."""
        sent = self.say(said, **how)
        self.execution.answer_turn(sent.turn_id)
        return self.task(sent.task_id)

    @contextmanager
    def answering(self, sent: AcceptedMessage) -> Iterator[None]:
        """Run the turn in a thread during the block, which must let it end."""
        thread = threading.Thread(target=self.execution.answer_turn, args=(sent.turn_id,))
        thread.start()
        yield
        thread.join(60)
        assert not thread.is_alive()

    def another_execution(self) -> TellableExecution:
        """Return another worker, which is not stopping."""
        *_, execution = make_execution(self.database, self.notifier, self.behaviors, self.settings)
        return execution

    def sweep(self) -> int:
        """Recover the turns of dead workers."""
        return sweep_turns(self.database, self.notifier)

    def recover(self, sent: Sequence[AcceptedMessage]) -> list[Task]:
        """Expire the leases of dead workers, and continue with another worker."""
        self.set("UPDATE task_turns SET lease_until = now() - interval '1 second' WHERE state = 'running'")
        self.sweep()
        for one in sent:
            self.execution.answer_turn(one.turn_id)
        return [self.task(one.task_id) for one in sent]

    def task(self, task_id: UUID | str) -> Task:
        with self.database.autocommit() as session:
            return read_snapshot(session, UUID(str(task_id)), history_length=None).task

    def cancel(self, task_id: UUID) -> Task:
        with self.database.transaction() as session:
            return cancel_task(session, self.scope(), task_id)

    def events(self, task_id: UUID | str) -> list[Mapping[str, Any]]:
        rows = self.rows(
            "SELECT CAST(event AS text) AS event FROM task_events WHERE task_id = :id ORDER BY sequence",
            id=task_id,
        )
        return [exact_json.parse(row["event"]) for row in rows]

    def turn(self, turn_id: UUID) -> dict[str, Any]:
        return self.rows("SELECT * FROM task_turns WHERE id = :id", id=turn_id)[0]

    def usage(self) -> list[dict[str, Any]]:
        """The usage records of the organization, oldest first."""
        return self.rows(
            "SELECT * FROM usage_records WHERE organization_id = :id ORDER BY occurred_at",
            id=self.organization_id,
        )

    def files(self) -> list[dict[str, Any]]:
        return self.rows(
            "SELECT * FROM files WHERE organization_id = :id ORDER BY id", id=self.organization_id
        )

    def rows(self, statement: str, **values: Any) -> list[dict[str, Any]]:
        with self.database.autocommit() as session:
            found = session.execute(text(statement), {name: str(value) for name, value in values.items()})
            return [dict(row._mapping) for row in found]

    def set(self, statement: str, **values: Any) -> None:
        with self.database.transaction() as session:
            session.execute(text(statement), {name: str(value) for name, value in values.items()})

    @property
    def balance(self) -> Balance:
        return Calls(self.database, self.organization_id).balance

    def discrepancies(self) -> list[str]:
        return Calls(self.database, self.organization_id).discrepancies()

    def _use(self, *, kind: str, **values: str) -> None:
        row = {
            "id": new_id(),
            "deployment_id": self.deployment.deployment.id,
            "name": f"behavior-{uuid4().hex[:8]}",
            "kind": kind,
            "description": "For tests.",
            "input_modes": ["*/*"],
            "is_default": True,
        }
        with self.database.transaction() as session:
            session.execute(behavior_rows.update().values(is_default=False))
            session.execute(behavior_rows.insert().values(**row, **values))


@contextmanager
def make_agents(
    database: Database, valkey_url: str, directory: Path, *, amount: int = CREDITS, **settings: object
) -> Iterator[Agents]:
    """Create an organization with credits, its agent, and a worker."""
    loaded = make_settings(redis_url=valkey_url, blob_store=directory.as_uri(), **settings)
    factory = IdentityFactory(database, loaded)
    organization_id = factory.organization().id
    if amount:
        with database.transaction() as session:
            top_up(
                session,
                organization_id=organization_id,
                amount=amount,
                reference=str(uuid4()),
                actor=OPERATOR,
            )
    valkey = connect_valkey(valkey_url)
    notifier = TaskNotifier(valkey)
    behaviors = build_behaviors(database, open_any_store(loaded), valkey, loaded)
    log, leases, watch, execution = make_execution(database, notifier, behaviors, loaded)
    try:
        yield Agents(
            database=database,
            settings=loaded,
            identity=factory,
            deployment=factory.deployment(organization_id),
            caller=factory.actor(factory.person(organization_id, bound=True)).caller,
            log=log,
            watch=watch,
            execution=execution,
            notifier=notifier,
            leases=leases,
            behaviors=behaviors,
        )
    finally:
        behaviors.calls.engine.router.close()
        behaviors.calls.admission.slots.close()
        valkey.close()
