"""Turns are taken in turn: whatever one organization's agents do, the others' are answered."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from sqlalchemy import text

from deploy.embedded.valkey import EmbeddedValkey
from shared import failpoints
from shared.a2a.agent_turns.lost_turns import TurnSweeper
from shared.a2a.agent_turns.queue import TakenTurn, TurnQueue
from shared.a2a.tasks.submission import AcceptedMessage
from shared.a2a.turn_state.leases import CLAIM, TurnLeases
from shared.a2a.types import TaskState
from shared.db.database import Database
from shared.errors import ServiceUnavailable
from shared.fairness.admission import UNFAIR
from shared.fairness.fair_queueing import RoundRobin
from shared.ids import new_id
from tests.shared.a2a.behaviors.agents import Agents, make_agents
from tests.support.data.query_plans import explain
from tests.support.processes.stack import TookTooLong, wait_until
from workers.consumers import ConsumerPool

SLOTS = 8
HANGS = "rules:\n- steps: [{status: a}, {hang: true}]"
ANSWERS = "rules:\n- steps: [complete: done]"


@pytest.fixture
def noisy(database: Database, valkey_server: EmbeddedValkey, tmp_path: Path) -> Iterator[Agents]:
    with make_agents(database, valkey_server.url, tmp_path) as agents:
        agents.use_script(HANGS)
        yield agents
        agents.set("DELETE FROM task_turns")


@pytest.fixture
def quiet(database: Database, valkey_server: EmbeddedValkey, tmp_path: Path) -> Iterator[Agents]:
    with make_agents(database, valkey_server.url, tmp_path) as agents:
        agents.use_script(ANSWERS)
        yield agents


@contextmanager
def working(agents: Agents) -> Iterator[None]:
    """Let a worker of eight threads take turns within the block."""
    queue = TurnQueue(agents.leases, slots=SLOTS)

    def answer(taken: TakenTurn) -> None:
        try:
            agents.execution.answer(taken.lease)
        finally:
            queue.release(taken)

    takers = ConsumerPool(queue.take, answer, limit=SLOTS, name="turn")
    takers.start()
    try:
        yield
    finally:
        agents.watch.shut_down()
        takers.stop()


def is_answered(agents: Agents, sent: AcceptedMessage) -> bool:
    return agents.task(sent.task_id).status.state is TaskState.COMPLETED


def hanging(noisy: Agents) -> int:
    return len(noisy.rows("SELECT id FROM task_turns WHERE state = 'running' AND updates > 0"))


def test_agents_that_hang_leave_room_for_those_of_others(noisy: Agents, quiet: Agents) -> None:
    for _ in range(10 * SLOTS):
        noisy.say("hello")
    with working(noisy):
        wait_until(lambda: hanging(noisy) >= SLOTS // 2, "the noisy organization uses its share")
        sent = [quiet.say("hello") for _ in range(5)]
        wait_until(lambda: all(is_answered(quiet, one) for one in sent), "the answers of another's agent")
        assert hanging(noisy) == SLOTS // 2


def test_without_shares_agents_that_hang_use_all_threads_up(
    noisy: Agents, quiet: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(failpoints._armed, UNFAIR, 0)
    for _ in range(10 * SLOTS):
        noisy.say("hello")
    with working(noisy):
        wait_until(lambda: hanging(noisy) == SLOTS, "the noisy organization uses all threads")
        sent = quiet.say("hello")
        with pytest.raises(TookTooLong):
            wait_until(lambda: is_answered(quiet, sent), "the answer of another's agent", seconds=2)


def test_organizations_and_their_agents_are_served_in_turn(noisy: Agents, quiet: Agents) -> None:
    for _ in range(6):
        noisy.say("hello")
        quiet.say("hello")
    other = noisy.identity.deployment(noisy.organization_id).deployment.id
    half = "UPDATE task_turns SET deployment_id = :other WHERE payer_id = :payer AND id IN (SELECT id FROM task_turns"
    noisy.set(f"{half} WHERE payer_id = :payer LIMIT 3)", other=other, payer=noisy.organization_id)
    leases = TurnLeases(noisy.database)
    taken = [lease for lease in (leases.take() for _ in range(8)) if lease is not None]
    assert Counter(lease.payer_id for lease in taken) == {noisy.organization_id: 4, quiet.organization_id: 4}
    agents = Counter(lease.deployment_id for lease in taken if lease.payer_id == noisy.organization_id)
    assert agents == {other: 2, noisy.deployment.deployment.id: 2}


def test_two_workers_take_different_turns(noisy: Agents) -> None:
    for _ in range(8):
        noisy.say("hello")
    one, other = TurnLeases(noisy.database), TurnLeases(noisy.database)
    taken = [lease for _ in range(4) for lease in (one.take(), other.take()) if lease is not None]
    assert len({lease.turn_id for lease in taken}) == 8
    assert one.take() is None


def test_a_turn_behind_another_of_its_task_is_not_taken(noisy: Agents) -> None:
    first = noisy.say("hello")
    leases = TurnLeases(noisy.database)
    lease = leases.take()
    assert lease is not None
    assert noisy.log.begin(lease) is not None
    noisy.set("UPDATE tasks SET is_visible = true")
    noisy.say("more", task=noisy.task(first.task_id))
    assert leases.take() is None


def test_to_take_a_turn_costs_the_same_however_many_wait(noisy: Agents, quiet: Agents) -> None:
    sent = noisy.say("hello")
    quiet.say("hello")
    copies = """
        INSERT INTO task_turns (id, task_id, message, behavior_id, request, active_extensions, payer_id, deployment_id,
            transaction_id, state, is_next)
        SELECT gen_random_uuid(), task_id, n + 1, behavior_id, request, active_extensions, payer_id, deployment_id,
            transaction_id, 'queued', {is_next}
        FROM task_turns, generate_series(1, 30000) n WHERE id = :id AND n % 2 = {remainder}"""
    # Half of them are behind others of their task, and so in no claim's way.
    for is_next, remainder in (("true", 0), ("false", 1)):
        noisy.set(copies.format(is_next=is_next, remainder=remainder), id=sent.turn_id)
    with noisy.database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE task_turns"))
    values = {"lease_id": new_id(), "seconds": 1}
    for full in ([], [noisy.organization_id], [quiet.organization_id]):
        plan = explain(noisy.database, CLAIM, {**values, **RoundRobin().parameters(full_tenants=full)})
        assert "ix_task_turns_ready" in plan.indexes
        assert plan.node_types.isdisjoint({"Seq Scan", "Sort", "Bitmap Heap Scan"})
        assert plan.rows_removed == 0
        assert plan.blocks < 100


def test_what_a_dead_worker_held_is_taken_over(quiet: Agents) -> None:
    sent = quiet.say("hello")
    assert TurnLeases(quiet.database).take() is not None
    sweeper = TurnSweeper(quiet.database, quiet.notifier)
    sweeper.start()
    with working(quiet):
        wait_until(lambda: is_answered(quiet, sent), "another worker's answer")
    sweeper.stop()


def test_a_claim_whose_answer_was_lost_is_no_attempt(quiet: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = RoundRobin.claim

    def claim_unheard(*arguments: Any, **named: Any) -> NoReturn:
        assert claim(*arguments, **named) is not None
        raise ServiceUnavailable

    quiet.say("hello")
    leases = TurnLeases(quiet.database)
    with monkeypatch.context() as patched:
        patched.setattr(RoundRobin, "claim", claim_unheard)
        for _ in range(2):  # what the second gives back is leased again
            with pytest.raises(ServiceUnavailable):
                leases.take()
    lease = leases.take()
    assert lease is not None
    assert quiet.turn(lease.turn_id)["attempts"] == 1
    assert leases.take() is None  # what is worked on is not given back


def test_a_worker_that_lost_a_lease_does_not_prolong_the_next_ones(quiet: Agents) -> None:
    quiet.say("hello")
    leases = TurnLeases(quiet.database)
    lost = leases.take()
    assert lost is not None
    taken_over = "UPDATE task_turns SET lease_id = gen_random_uuid() WHERE id = :id"
    quiet.set(taken_over, id=lost.turn_id)
    until = quiet.turn(lost.turn_id)["lease_until"]
    leases.renew([lost])
    assert quiet.turn(lost.turn_id)["lease_until"] == until
    assert leases.check([lost]) == {}
    quiet.set("DELETE FROM task_turns WHERE id = :id", id=lost.turn_id)
