"""The log under two workers, two clients and a cancellation: one order, one answer, nothing after the end."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest

from shared import failpoints
from shared.a2a.agent_turns import task_log as log_module
from shared.a2a.agent_turns.backlog import measure_turns
from shared.a2a.agent_turns.lost_turns import INTERRUPTED
from shared.a2a.push.configurations import PushConfigurations
from shared.a2a.tasks import cancellation
from shared.a2a.tasks.claimed_turns import ClaimedTurn, TurnLost
from shared.a2a.tasks.events import LockedTask, find_and_lock_task
from shared.a2a.types import Artifact, Message, MessageRole, Part, TaskPushNotificationConfig, TaskState
from shared.a2a.updates import ArtifactProduced, Replied, StatusChanged
from shared.db.database import Session
from shared.deliveries.ordering import lock_order
from shared.egress.policy import EgressPolicy
from shared.encryption import Encryption
from tests.shared.a2a.behaviors.agents import Agents
from tests.shared.a2a.remote.turns import outline
from tests.support.processes.stack import wait_until

WORKING = StatusChanged(state=TaskState.WORKING)
COMPLETED = StatusChanged(state=TaskState.COMPLETED)
ASKING = StatusChanged(state=TaskState.INPUT_REQUIRED)


@pytest.fixture(autouse=True)
def _write_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write each update by itself: what is written together is another test's."""
    monkeypatch.setattr(log_module, "BATCH_SECONDS", 0.0)


def claim(agents: Agents, text: str = "hello") -> ClaimedTurn:
    claimed = agents.log.claim(agents.say(text).turn_id)
    assert claimed is not None
    return claimed


def piece(number: int) -> ArtifactProduced:
    artifact = Artifact(artifact_id="a", parts=(Part(text=f"{number} "),))
    return ArtifactProduced(artifact=artifact, append=number > 0, last_chunk=False)


def reply(text: str) -> Replied:
    return Replied(message=Message(message_id="r", role=MessageRole.AGENT, parts=(Part(text=text),)))


def lapse(agents: Agents, claimed: ClaimedTurn) -> None:
    agents.set(
        "UPDATE task_turns SET lease_until = now() - interval '1 second' WHERE id = :id", id=claimed.turn.id
    )


def test_one_of_many_workers_takes_a_turn(agents: Agents) -> None:
    sent = agents.say("hello")
    with ThreadPoolExecutor(8) as threads:
        claims = list(threads.map(lambda _: agents.log.claim(sent.turn_id), range(8)))
    assert sum(claim is not None for claim in claims) == 1


def test_a_turn_waits_for_the_one_before_it(agents: Agents) -> None:
    first = claim(agents)
    agents.log.append(first, WORKING)
    second = agents.say("more", task=agents.task(first.turn.task_id))
    assert agents.log.claim(second.turn_id) is None
    agents.log.append(first, ASKING)
    claimed = agents.log.claim(second.turn_id)
    assert claimed is not None
    assert agents.task(first.turn.task_id).status.state is TaskState.SUBMITTED
    assert [part.text for said in claimed.turn.history() for part in said.parts] == ["hello"]


def test_the_backlog_counts_what_a_worker_could_take(agents: Agents) -> None:
    def waiting() -> int:
        with agents.database.autocommit() as session:
            return measure_turns(session).waiting

    before = waiting()
    first = agents.say("hello")
    assert waiting() == before + 1
    claimed = agents.log.claim(first.turn_id)
    assert claimed is not None
    agents.log.append(claimed, WORKING)
    agents.say("more", task=agents.task(first.task_id))
    assert waiting() == before
    agents.log.append(claimed, StatusChanged(state=TaskState.INPUT_REQUIRED))
    assert waiting() == before + 1


def test_messages_that_come_too_late_are_let_go(agents: Agents) -> None:
    first = claim(agents)
    agents.log.append(first, WORKING)
    second = agents.say("more", task=agents.task(first.turn.task_id))
    agents.log.append(first, COMPLETED)
    assert agents.log.claim(second.turn_id) is None
    assert agents.turn(second.turn_id)["outcome"] == "dropped"


def test_events_have_one_order_without_gaps(agents: Agents) -> None:
    claimed = claim(agents)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: agents.log.append(claimed, piece(number)), range(24)))
    agents.log.append(claimed, COMPLETED)
    rows = agents.rows(
        "SELECT sequence FROM task_events WHERE task_id = :id ORDER BY sequence", id=claimed.turn.task_id
    )
    assert [row["sequence"] for row in rows] == list(range(1, 26))
    task = agents.task(claimed.turn.task_id)
    said = [event["artifactUpdate"] for event in agents.events(task.id)[:-1]]
    # What is not appended begins the artifact anew; all later pieces continue its one text.
    begun = next(index for index, event in enumerate(said) if not event["append"])
    expected = "".join(event["artifact"]["parts"][0]["text"] for event in said[begun:])
    assert [part.text for part in task.artifacts[0].parts] == [expected]


@pytest.mark.parametrize("loss", ["cancelled", "taken back", "ended"])
def test_worker_that_lost_its_turn_writes_nothing(agents: Agents, loss: str) -> None:
    claimed = claim(agents)
    agents.log.append(claimed, WORKING)
    if loss == "cancelled":
        agents.cancel(claimed.turn.task_id)
    elif loss == "taken back":
        lapse(agents, claimed)
        agents.sweep()
    else:
        agents.log.append(claimed, COMPLETED)
    before = agents.task(claimed.turn.task_id)
    for said in (WORKING, piece(0), COMPLETED, reply("late")):
        with pytest.raises(TurnLost):
            agents.log.append(claimed, said)
    agents.leases.renew([claimed.lease])
    assert not agents.leases.check([claimed.lease])
    assert agents.task(claimed.turn.task_id) == before


def test_worker_that_lost_its_turn_before_the_start_leaves_the_task(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = claim(agents)
    agents.log.append(first, WORKING)
    second = agents.say("more", task=agents.task(first.turn.task_id))
    agents.log.append(first, ASKING)
    lease = agents.log.lease(second.turn_id)
    assert lease is not None

    def answer_meanwhile(_: str) -> None:
        monkeypatch.undo()
        agents.set("UPDATE task_turns SET lease_until = now() WHERE id = :id", id=second.turn_id)
        agents.sweep()
        other = agents.log.claim(second.turn_id)
        assert other is not None
        agents.log.append(other, ASKING)

    monkeypatch.setattr(failpoints, "hit", answer_meanwhile)
    with pytest.raises(TurnLost):
        agents.log.begin(lease)
    assert outline(agents, agents.task(second.task_id)) == [
        *("WORKING", "INPUT_REQUIRED"),
        *("SUBMITTED", "INPUT_REQUIRED"),
    ]


def test_resuming_a_task_is_not_an_update_of_its_agent(agents: Agents) -> None:
    first = claim(agents)
    agents.log.append(first, WORKING)
    second = agents.say("more", task=agents.task(first.turn.task_id))
    agents.log.append(first, ASKING)
    assert agents.log.claim(second.turn_id) is not None
    turn = agents.turn(second.turn_id)
    assert (turn["updates"], turn["has_spoken"]) == (0, False)


def test_a_turn_that_said_nothing_is_run_again_and_then_given_up(agents: Agents) -> None:
    claimed = claim(agents)
    for attempt in (1, 2, 3):
        assert claimed.lease.row.attempts == attempt
        if attempt == 1:
            agents.log.append(claimed, WORKING)
        lapse(agents, claimed)
        agents.sweep()
        again = agents.log.claim(claimed.turn.id)
        if again is None:
            break
        claimed = again
    task = agents.task(claimed.turn.task_id)
    assert task.status.state is TaskState.FAILED
    assert task.status.message is not None
    assert task.status.message.parts[0].text == INTERRUPTED
    assert attempt == 3


def test_a_model_that_had_spoken_is_not_asked_again(agents: Agents) -> None:
    claimed = claim(agents)
    agents.log.append(claimed, piece(0))
    lapse(agents, claimed)
    agents.sweep()
    assert agents.task(claimed.turn.task_id).status.state is TaskState.FAILED


def test_two_clients_that_cancel_are_told_apart(agents: Agents) -> None:
    claimed = claim(agents)
    agents.log.append(claimed, WORKING)

    def cancel(_: int) -> str:
        try:
            return agents.cancel(claimed.turn.task_id).status.state
        except Exception as error:  # noqa: BLE001
            return type(error).__name__

    with ThreadPoolExecutor(4) as threads:
        outcomes = sorted(threads.map(cancel, range(4)))
    assert outcomes == ["TASK_STATE_CANCELED", *["TaskNotCancelable"] * 3]


def test_update_before_a_cancellations_lock_is_in_the_task_once(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = claim(agents)
    for number in (1, 2):
        agents.log.append(claimed, piece(number))

    def say_before(session: Session, task_id: UUID) -> LockedTask | None:
        agents.log.append(claimed, piece(3))
        return find_and_lock_task(session, task_id)

    monkeypatch.setattr(cancellation, "find_and_lock_task", say_before)
    task = agents.cancel(claimed.turn.task_id)
    assert [part.text for part in task.artifacts[0].parts] == ["1 2 3 "]


def test_what_was_said_in_the_context_is_history(agents: Agents, tmp_path: Path) -> None:
    first = agents.log.claim(agents.say("one", context_id="ctx").turn_id)
    assert first is not None
    agents.log.append(first, piece(0))
    agents.log.append(first, COMPLETED)
    elsewhere = agents.log.claim(agents.say("unconfirmed", context_id="other").turn_id)
    assert elsewhere is not None
    second = agents.log.claim(agents.say("two", context_id="ctx").turn_id)
    assert second is not None
    said = [(said.role, said.parts[0].text) for said in second.turn.history()]
    assert said == [(MessageRole.USER, "one"), (MessageRole.AGENT, "0 ")]


def test_update_waiting_for_a_new_configuration_is_posted_there(agents: Agents) -> None:
    claimed = claim(agents)
    policy = EgressPolicy.of(agents.settings)
    pushes = PushConfigurations(encryption=Encryption(agents.settings), policy=policy)
    wanted = TaskPushNotificationConfig(url="https://hooks.example/tasks")
    with ThreadPoolExecutor(1) as threads:
        with agents.database.transaction() as session:
            pushes.create(session, claimed.turn.task_id, wanted)
            written = threads.submit(agents.log.append, claimed, COMPLETED)
            wait_until(lambda: bool(agents.rows(_WAITING_FOR_LOCKS)), "the update waits for the task's row")
        written.result()
    assert len(agents.rows("SELECT id FROM deliveries WHERE event = 'statusUpdate'")) == 1


def test_update_is_not_posted_to_a_concurrently_deleted_configuration(
    agents: Agents,
) -> None:
    claimed = claim(agents)
    policy = EgressPolicy.of(agents.settings)
    pushes = PushConfigurations(encryption=Encryption(agents.settings), policy=policy)
    for name in ("first", "second"):
        with agents.database.transaction() as session:
            wanted = TaskPushNotificationConfig(id=name, url="https://hooks.example/tasks")
            pushes.create(session, claimed.turn.task_id, wanted)
    of_task = "FROM task_push_configurations WHERE task_id = :task ORDER BY id"
    made = agents.rows(f"SELECT destination_id {of_task}", task=claimed.turn.task_id)
    kept, gone = (row["destination_id"] for row in made)

    def delete_second() -> None:
        with agents.database.transaction() as session:
            pushes.delete(session, claimed.turn.task_id, "second")

    with ThreadPoolExecutor(2) as threads:
        with agents.database.transaction() as session:
            lock_order(session, kept)
            written = threads.submit(agents.log.append, claimed, COMPLETED)
            wait_until(lambda: bool(agents.rows(_WAITING_FOR_LOCKS)), "the update knows both configurations")
            deleted = threads.submit(delete_second)
            wait_until(
                lambda: deleted.done() or len(agents.rows(_WAITING_FOR_LOCKS)) == 2,
                "the deletion is done, or waits for the update",
            )
        written.result()
        deleted.result()
    handed = agents.rows(
        "SELECT destination_id, state FROM deliveries WHERE destination_id IN (:kept, :gone)",
        kept=kept,
        gone=gone,
    )
    assert {row["destination_id"]: row["state"] for row in handed} == {kept: "Waiting", gone: "Dead"}


_WAITING_FOR_LOCKS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
