"""The threads that fetch are shared: slow sources of one organization do not make another's import wait."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from uuid import uuid4

from sqlalchemy import text

from shared.fairness.admission import Pool
from shared.fairness.fair_queueing import RoundRobin
from shared.ids import new_id
from shared.media.importing import claims
from shared.media.importing.imports import Import, ImportState
from tests.shared.media.conftest import Desk, Mailbox, attachment
from tests.support.data.media_samples import PNG
from tests.support.data.media_sources import Handler, content
from tests.support.data.query_plans import explain
from tests.support.processes.stack import wait_until

THREADS = 8


class SlowSource:
    """A source that sends nothing until it is released."""

    def __init__(self, desk: Desk) -> None:
        self.may_answer = threading.Event()
        self.asked = threading.Semaphore(0)
        self.url = desk.source.serve(f"/slow-{uuid4()}", self._hesitate)

    def _hesitate(self, handler: Handler) -> None:
        self.asked.release()
        self.may_answer.wait(60)
        content(PNG.content)(handler)


@contextmanager
def busy_worker(desk: Desk, slow: list[SlowSource]) -> Iterator[ThreadPoolExecutor]:
    """Start as many threads as a worker has, which fetch until nothing is due."""
    desk.fetcher = replace(desk.fetcher, pool=Pool("fetches", THREADS))
    with ThreadPoolExecutor(THREADS) as threads:
        try:
            yield threads
        finally:
            for source in slow:
                source.may_answer.set()


def start(threads: ThreadPoolExecutor, desk: Desk) -> list[Future[int]]:
    return [threads.submit(desk.work) for _ in range(THREADS)]


def is_stored(desk: Desk, queued: Import) -> bool:
    return desk.read(queued).state is ImportState.STORED


def test_busy_distributions_of_one_organization_leave_threads_to_another(desk: Desk) -> None:
    slow = SlowSource(desk)
    hostile = desk.mailbox()
    for mailbox in (hostile, desk.mailbox_beside(hostile)):
        desk.push(mailbox, *(attachment(slow.url, attachment_id=str(n)) for n in range(2 * THREADS)))
    with busy_worker(desk, [slow]) as threads:
        working = start(threads, desk)
        for _ in range(THREADS // 2):
            assert slow.asked.acquire(timeout=90)
        wait_until(
            lambda: sum(each.done() for each in working) == THREADS // 2, "half of the threads are left"
        )
        (wanted,) = desk.push(desk.mailbox(), attachment(desk.source.serve("/quick", content(PNG.content))))
        threads.submit(desk.work).result(90)
        assert is_stored(desk, wanted)


def test_organizations_are_served_in_turn_whichever_pushed_first(desk: Desk) -> None:
    url = desk.source.serve("/media", content(PNG.content))
    many = desk.mailbox()
    desk.push(many, *(attachment(url, attachment_id=str(n)) for n in range(20)))
    others = [desk.push(desk.mailbox(), attachment(url))[0] for _ in range(3)]
    turns = [claim(desk) for _ in range(8)]
    assert {queued.id for queued in others} <= set(turns[:4])


def test_distributions_of_an_organization_take_turns(desk: Desk) -> None:
    first = desk.mailbox()
    second = desk.mailbox_beside(first)
    for mailbox in (first, second):
        desk.push(mailbox, *(attachment("https://media.example/", attachment_id=str(n)) for n in range(4)))
    owners = [
        desk.sql("SELECT distribution_id FROM media_imports WHERE id = :id", id=claim(desk))[0][0]
        for _ in "1234"
    ]
    assert sorted(owners) == sorted([first.id, second.id] * 2)


def claim(desk: Desk) -> object:
    with desk.database.transaction() as session:
        claimed = claims.claim_due(session, desk.fetcher.rotation, per_distribution=99)
    assert claimed is not None
    return claimed[0].id


def test_a_dripping_source_is_cut_off_and_tried_again(desk: Desk, mailbox: Mailbox) -> None:
    changed = {
        "media_grace_seconds": 0.3,
        "media_minimum_bytes_per_second": 1 << 20,
        "media_fetch_seconds": 600,
    }
    desk.fetcher = replace(desk.fetcher, settings=desk.fetcher.settings.model_copy(update=changed))
    is_cut_off = threading.Event()

    def drip(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 100000\r\n\r\n")
        try:
            while not desk.source.is_over.wait(0.02):
                handler.wfile.write(b"x")
        finally:
            is_cut_off.set()

    (queued,) = desk.push(mailbox, attachment(desk.source.serve("/drip", drip)))
    assert desk.work() == 1
    assert is_cut_off.wait(90)
    put_back = desk.read(queued)
    assert (put_back.state, put_back.code) == (ImportState.QUEUED, "fetch_timed_out")


def test_two_workers_claim_different_imports(desk: Desk) -> None:
    mailboxes = [desk.mailbox() for _ in range(4)]
    for mailbox in mailboxes:
        desk.push(mailbox, *(attachment("https://media.example/", attachment_id=str(n)) for n in range(3)))
    here = threading.Barrier(2)

    def work(_: int) -> list[object]:
        rotation = RoundRobin()
        here.wait()
        claimed: list[object] = []
        while True:
            with desk.database.transaction() as session:
                one = claims.claim_due(session, rotation, per_distribution=99)
            if one is None:
                return claimed
            claimed.append(one[0].id)

    with ThreadPoolExecutor(2) as pool:
        claimed = [import_id for each in pool.map(work, range(2)) for import_id in each]
    assert len(claimed) == len(set(claimed)) == 12


def test_a_claim_costs_the_same_however_many_imports_wait(desk: Desk) -> None:
    tenants = sorted(new_id() for _ in range(3))
    fill(desk, tenants[0], 20_000, due="now() - interval '1 hour'", is_ready=True)
    fill(desk, tenants[1], 20_000, due="now() + interval '1 day'", is_ready=False)
    fill(desk, tenants[2], 10, due="now() - interval '1 s'", is_ready=True)
    with desk.database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE media_imports"))
    values = RoundRobin().parameters(full_tenants=[tenants[0]])
    plan = explain(desk.database, claims.CLAIM, {**values, "lease": claims.LEASE})
    assert "ix_media_imports_ready" in plan.indexes
    assert plan.rows_removed == 0
    assert plan.node_types.isdisjoint({"Seq Scan", "Sort"})
    assert plan.blocks < 100
    plan = explain(desk.database, claims.MARK_READY)
    assert plan.indexes == {"ix_media_imports_later"} | (plan.indexes - {"ix_media_imports_due"})
    assert plan.blocks < 20


def fill(desk: Desk, organization_id: object, count: int, *, due: str, is_ready: bool) -> None:
    desk.sql(
        f"""
        INSERT INTO media_imports (id, distribution_id, organization_id, network, message_id, attachment_id, location,
            request_hash, state, due_at, is_ready)
        SELECT gen_random_uuid(), :distribution, :organization, 'standard', n::text, 'a', '{{}}', '\\x00', 'Queued',
            {due}, :is_ready
        FROM generate_series(1, :count) n""",
        distribution=new_id(),
        organization=organization_id,
        count=count,
        is_ready=is_ready,
    )
