"""A turn is answered once, by the worker that holds its lease, whatever happens meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.embedded.valkey import EmbeddedValkey
from shared.a2a.agent_turns.execution import BROKEN, REVOKED, TOO_LONG
from shared.a2a.agent_turns.lost_turns import INTERRUPTED
from shared.a2a.tasks.claimed_turns import ClaimedTurn
from shared.a2a.types import Task, TaskState
from shared.a2a.updates import Update
from shared.db.database import Database, Session
from shared.errors import DomainError, ServiceUnavailable
from shared.files.blobs.base import BlobStoreUnavailable, StorageFull, StorageReadOnly
from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.deployments import disable_deployment
from shared.identity.directory.identities import disable_identity
from shared.identity.directory.organizations import suspend_organization
from tests.shared.a2a.behaviors.agents import Agents, make_agents
from tests.support.processes.stack import wait_until


def script(*steps: str) -> str:
    return "rules:\n- steps:\n" + "\n".join(f"  - {step}" for step in steps)


def said(task: Task) -> str | None:
    return None if task.status.message is None else task.status.message.parts[0].text


def states(agents: Agents, task: Task) -> list[str]:
    events = [event.get("statusUpdate") for event in agents.events(task.id)]
    return [event["status"]["state"].removeprefix("TASK_STATE_") for event in events if event]


def test_a_script_is_written_into_the_task(agents: Agents) -> None:
    agents.use_script(script("status: Looking", "artifact: {id: a, chunks: [one, ' two']}", "complete: Done"))
    task = agents.answer("hello")
    assert (task.status.state, said(task)) == (TaskState.COMPLETED, "Done")
    assert [part.text for part in task.artifacts[0].parts] == ["one two"]
    assert states(agents, task) == ["WORKING", "COMPLETED"]


def test_a_question_waits_for_the_next_message(agents: Agents) -> None:
    agents.use_script(script("input_required: Which?", 'artifact: "${text} it is"'))
    asked = agents.answer("one of them")
    assert asked.status.state is TaskState.INPUT_REQUIRED
    task = agents.answer("the second", task=asked)
    assert task.status.state is TaskState.COMPLETED
    assert task.artifacts[0].parts[0].text == "the second it is"


def test_a_message_answers_without_a_task(agents: Agents) -> None:
    agents.use_script(script("message: pong"))
    sent = agents.say("ping")
    agents.execution.answer_turn(sent.turn_id)
    assert agents.rows("SELECT is_visible FROM tasks WHERE id = :id", id=sent.task_id) == [
        {"is_visible": False}
    ]
    assert agents.turn(sent.turn_id)["reply"] is not None


def test_a_message_that_comes_twice_is_answered_once(agents: Agents) -> None:
    agents.use_script(script("status: a", "complete: b"))
    sent = agents.say("hello")
    agents.execution.answer_turn(sent.turn_id)
    agents.execution.answer_turn(sent.turn_id)
    assert states(agents, agents.task(sent.task_id)) == ["WORKING", "COMPLETED"]


def test_internal_error_is_not_shown_to_the_client(agents: Agents, caplog: pytest.LogCaptureFixture) -> None:
    agents.use_script(script("status: a", "crash: true"))
    task = agents.answer("hello")
    assert (task.status.state, said(task)) == (TaskState.FAILED, BROKEN)
    assert "turn.broken" in caplog.text


def test_an_agent_that_says_nothing_has_not_answered(agents: Agents) -> None:
    agents.use_script(script("silence: true"))
    sent = agents.say("hello")
    agents.execution.answer_turn(sent.turn_id)
    assert agents.turn(sent.turn_id)["outcome"] == "invalid"


def test_a_cancelled_turn_ends_at_once_and_says_nothing_more(agents: Agents) -> None:
    agents.use_script(script("status: a", "delay: 60", "complete: b"))
    sent = agents.say("hello")
    with agents.answering(sent):
        wait_until(lambda: bool(states(agents, agents.task(sent.task_id))), "the first update")
        agents.cancel(sent.task_id)
    assert states(agents, agents.task(sent.task_id)) == ["WORKING", "CANCELED"]


def test_a_turn_that_takes_too_long_fails(
    database: Database, valkey_server: EmbeddedValkey, tmp_path: Path, brisk: None
) -> None:
    with make_agents(database, valkey_server.url, tmp_path, a2a_turn_seconds=0.1) as agents:
        agents.use_script(script("status: a", "hang: true"))
        task = agents.answer("hello")
    assert (task.status.state, said(task)) == (TaskState.FAILED, TOO_LONG)


def test_a_lease_is_kept_while_the_turn_runs(agents: Agents) -> None:
    agents.use_script(script("status: a", "delay: 60"))
    sent = agents.say("hello")
    with agents.answering(sent):
        wait_until(lambda: agents.turn(sent.turn_id)["lease_until"] is not None, "the lease")
        first = agents.turn(sent.turn_id)["lease_until"]
        wait_until(lambda: agents.turn(sent.turn_id)["lease_until"] > first, "a renewal")
        wait_until(lambda: states(agents, agents.task(sent.task_id)) == ["WORKING"], "the first update")
        agents.cancel(sent.task_id)


def test_a_worker_that_is_asked_to_stop_hands_turns_back(agents: Agents) -> None:
    agents.use_script(script("status: a", "delay: 60", "complete: b"))
    sent = agents.say("hello")
    with agents.answering(sent):
        wait_until(lambda: states(agents, agents.task(sent.task_id)) == ["WORKING"], "the first update")
        agents.watch.shut_down()
    turn = agents.turn(sent.turn_id)
    assert (turn["state"], turn["attempts"]) == ("queued", 0)


def test_a_script_goes_on_where_another_worker_died(agents: Agents) -> None:
    agents.use_script(script("status: a", "artifact: b", "status: c", "complete: d"))
    sent = agents.say("hello")
    claimed = agents.log.claim(sent.turn_id)
    assert claimed is not None
    updates = agents.behaviors.by_kind[claimed.turn.behavior.kind].run(claimed.turn)
    agents.log.append(claimed, next(iter(updates)))
    agents.log.append(claimed, next(iter(updates)))
    agents.log.hand_back(claimed)
    agents.execution.answer_turn(sent.turn_id)
    task = agents.task(sent.task_id)
    assert states(agents, task) == ["WORKING", "WORKING", "COMPLETED"]
    assert len(task.artifacts) == 1
    words = [event["statusUpdate"] for event in agents.events(task.id) if "statusUpdate" in event]
    assert [word["status"]["message"]["parts"][0]["text"] for word in words] == ["a", "c", "d"]


def test_a_commit_that_nobody_heard_of_is_not_written_twice(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents.use_script(script("status: a", "artifact: b", "complete: c"))
    sent = agents.say("hello")
    begin, append = agents.database.transaction, agents.log.append

    @contextmanager
    def break_after_commit() -> Iterator[Session]:
        with begin() as session:
            yield session
        monkeypatch.setattr(agents.database, "transaction", begin)
        raise ServiceUnavailable

    def append_breaking_once(claimed: ClaimedTurn, update: Update) -> None:
        if update not in seen:
            seen.append(update)
            monkeypatch.setattr(agents.database, "transaction", break_after_commit)
        append(claimed, update)

    seen: list[Update] = []
    monkeypatch.setattr(agents.log, "append", append_breaking_once)
    agents.execution.answer_turn(sent.turn_id)
    task = agents.task(sent.task_id)
    assert len(seen) == 3
    assert states(agents, task) == ["WORKING", "COMPLETED"]
    assert [part.text for artifact in task.artifacts for part in artifact.parts] == ["b"]


@pytest.mark.parametrize("failure", [ServiceUnavailable, BlobStoreUnavailable, StorageFull, StorageReadOnly])
def test_turn_is_retried_after_a_long_outage_of_a_dependency(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, failure: type[DomainError]
) -> None:
    agents.use_script(script("complete: b"))
    sent = agents.say("hello")

    def fail(*_: object) -> None:
        raise failure

    with monkeypatch.context() as patch:
        for held in agents.behaviors.by_kind.values():
            patch.setattr(type(held), "run", fail)
        agents.execution.answer_turn(sent.turn_id)
    assert agents.turn(sent.turn_id)["state"] == "queued"
    agents.execution.answer_turn(sent.turn_id)
    assert agents.task(sent.task_id).status.state is TaskState.COMPLETED


def test_a_turn_that_is_interrupted_again_and_again_fails(agents: Agents) -> None:
    agents.use_script(script("delay: 60"))
    sent = agents.say("hello")
    for _ in range(3):
        claimed = agents.log.claim(sent.turn_id)
        assert claimed is not None
        agents.log.hand_back(claimed)
    task = agents.task(sent.task_id)
    assert (task.status.state, said(task)) == (TaskState.FAILED, INTERRUPTED)


@pytest.mark.parametrize("ended", ["deployment", "daemon", "organization", "owner", "payer"])
def test_a_turn_ends_when_whom_it_works_for_is_disabled(agents: Agents, ended: str) -> None:
    agents.use_script(script("status: a", "delay: 60", "complete: b"))
    sent = agents.say("hello")
    deployment = agents.deployment.deployment
    payer = agents.identity.organization()
    owner = agents.identity.principal(payer.id)
    with agents.answering(sent):
        wait_until(lambda: states(agents, agents.task(sent.task_id)) == ["WORKING"], "the first update")
        theirs = "UPDATE task_turns SET payer_id = :payer, owner_id = :owner WHERE id = :id"
        agents.set(theirs, payer=payer.id, owner=owner.id, id=sent.turn_id)
        with agents.database.transaction() as session:
            if ended == "deployment":
                disable_deployment(session, actor=OPERATOR, deployment_id=deployment.id)
            elif ended == "daemon":
                disable_identity(session, actor=OPERATOR, identity_id=deployment.daemon_identity_id)
            elif ended == "owner":
                disable_identity(session, actor=OPERATOR, identity_id=owner.id)
            else:
                suspended = payer.id if ended == "payer" else agents.organization_id
                suspend_organization(session, actor=OPERATOR, organization_id=suspended)
    task = agents.task(sent.task_id)
    assert (task.status.state, said(task)) == (TaskState.FAILED, REVOKED)


def test_a_model_that_a_disabled_agent_had_asked_is_asked_no_longer(agents: Agents) -> None:
    agents.use_model("scripted/echo")
    sent = agents.say("!delay 500\n!tokens 100")
    with agents.answering(sent):
        wait_until(lambda: bool(agents.rows(_DISPATCHED)), "the call")
        with agents.database.transaction() as session:
            disable_deployment(session, actor=OPERATOR, deployment_id=agents.deployment.deployment.id)
    assert said(agents.task(sent.task_id)) == REVOKED
    assert not agents.rows(_DISPATCHED)
    assert agents.balance.held == 0


_DISPATCHED = "SELECT id FROM invocations WHERE state = 'dispatched'"
