"""A message arrives at least once, always under its own id, and no other waits for a slow destination."""

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

import pytest
from cryptography.fernet import InvalidToken
from sqlalchemy import text

from shared.db.database import Database, Session
from shared.deliveries.channels import Address
from shared.deliveries.claims import postpone, record_delivered, record_failed
from shared.deliveries.outbox import DeliveryState, enqueue_delivery, give_up
from shared.deliveries.schedule import MAX_ATTEMPTS, WAITS_SECONDS
from shared.deliveries.sender import MAX_LAPSES, Sender
from tests.shared.deliveries import outbox
from tests.shared.deliveries.outbox import BODY, ORGANIZATION, claim_due, enqueue, let_time_pass, read, row
from tests.shared.egress.servers import Answer, Server, content, redirect
from tests.support.processes import process_forks
from tests.support.processes.stack import wait_until

OK = content(b"")
FAILS = content(b"", status="500 Failed")


def test_a_message_arrives_and_is_forgotten(database: Database, sender: Sender, server: Server) -> None:
    server.on("/hook", OK)
    destination, headers = uuid4(), {"Authorization": "Bearer secret"}
    delivery_id = enqueue(
        database, server.url("/hook"), destination, headers=headers, content_type="application/a2a+json"
    )
    assert b"secret" not in bytes(row(database, delivery_id).address_encrypted)
    assert sender.send_due() == 1
    (asked,) = server.asked
    assert (asked.method, asked.body) == ("POST", BODY)
    assert asked.headers["authorization"] == "Bearer secret"
    assert asked.headers["content-type"] == "application/a2a+json"
    delivery = read(database, destination, delivery_id)
    assert (delivery.state, delivery.attempts, delivery.last_status) == (DeliveryState.DELIVERED, 1, 200)
    kept = row(database, delivery_id)
    assert (kept.body, kept.address_encrypted) == (None, None)
    assert sender.send_due() == 0


def test_a_message_is_tried_on_the_schedule_until_it_is_given_up(
    database: Database, sender: Sender, server: Server
) -> None:
    server.on("/hook", FAILS)
    destination = uuid4()
    delivery_id = enqueue(database, server.url("/hook"), destination)
    for attempt, wait in enumerate(WAITS_SECONDS, start=1):
        assert sender.send_due() == 1
        delivery = read(database, destination, delivery_id)
        assert (delivery.state, delivery.attempts, delivery.last_status) == (
            DeliveryState.WAITING,
            attempt,
            500,
        )
        assert delivery.last_attempt_at is not None
        assert wait <= (delivery.due_at - delivery.last_attempt_at).total_seconds() <= wait * 1.1
        assert sender.send_due() == 0
        let_time_pass(database)
    assert sender.send_due() == 1
    assert read(database, destination, delivery_id).state is DeliveryState.DEAD
    assert len(server.asked) == MAX_ATTEMPTS
    let_time_pass(database)
    assert sender.send_due() == 0
    assert bytes(row(database, delivery_id).body) == BODY


def test_a_kind_of_message_may_be_worth_fewer_attempts(
    database: Database, sender: Sender, server: Server
) -> None:
    server.on("/hook", FAILS)
    destination = uuid4()
    delivery_id = enqueue(database, server.url("/hook"), destination, attempt_limit=1)
    sender.send_due()
    assert read(database, destination, delivery_id).state is DeliveryState.DEAD


def test_a_destination_may_ask_for_more_time(database: Database, sender: Sender, server: Server) -> None:
    server.on("/hook", content(b"", "Retry-After: 500", status="503 Busy"))
    destination = uuid4()
    delivery_id = enqueue(database, server.url("/hook"), destination)
    sender.send_due()
    delivery = read(database, destination, delivery_id)
    assert delivery.last_attempt_at is not None
    assert 500 <= (delivery.due_at - delivery.last_attempt_at).total_seconds() <= 550


@pytest.mark.parametrize(
    "answer",
    [
        redirect("/other"),
        content(b"", status="404 No"),
        lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\n"),
        lambda _: None,
    ],
)
def test_whatever_is_no_success_is_tried_again(
    database: Database, sender: Sender, server: Server, answer: Answer
) -> None:
    server.on("/hook", answer)
    destination = uuid4()
    delivery_id = enqueue(database, server.url("/hook"), destination)
    sender.send_due()
    assert read(database, destination, delivery_id).state is DeliveryState.WAITING
    assert [asked.path for asked in server.asked] == ["/hook"]


def test_a_destination_that_cannot_be_reached_is_tried_again(database: Database, sender: Sender) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    destination = uuid4()
    delivery_id = enqueue(database, f"http://127.0.0.1:{port}/", destination)
    sender.send_due()
    delivery = read(database, destination, delivery_id)
    assert (delivery.state, delivery.last_status, delivery.last_code) == (
        DeliveryState.WAITING,
        None,
        "connection_failed",
    )


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://169.254.169.254/latest", "address_refused"),
        ("gopher://127.0.0.1/", "scheme_refused"),
        ("http://a b/", "url_refused"),
    ],
)
def test_an_address_that_must_not_be_asked_is_given_up_at_once(
    database: Database, sender: Sender, url: str, code: str
) -> None:
    destination = uuid4()
    delivery_id = enqueue(database, url, destination)
    sender.send_due()
    delivery = read(database, destination, delivery_id)
    assert (delivery.state, delivery.last_code) == (DeliveryState.DEAD, code)


def test_a_destination_that_is_gone_is_sent_nothing_more(
    database: Database, sender: Sender, server: Server
) -> None:
    server.on("/hook", content(b"", status="410 Gone"))
    destination = uuid4()
    first = enqueue(database, server.url("/hook"), destination, in_flight_limit=1)
    others = [enqueue(database, server.url("/hook"), destination, in_flight_limit=1) for _ in range(3)]
    sender.send_due()
    assert len(server.asked) == 1
    assert read(database, destination, first).last_status == 410
    for other in others:
        delivery = read(database, destination, other)
        assert (delivery.state, delivery.last_code) == (DeliveryState.DEAD, "destination_gone")


def test_an_address_that_is_gone_ends_nothing_that_waits_for_another(
    database: Database, sender: Sender, server: Server
) -> None:
    server.on("/old", content(b"", status="410 Gone"))
    server.on("/new", OK)
    destination = uuid4()
    old = enqueue(database, server.url("/old"), destination, in_flight_limit=1)
    new = enqueue(database, server.url("/new"), destination, in_flight_limit=1)
    sender.send_due()
    assert read(database, destination, old).state is DeliveryState.DEAD
    assert read(database, destination, new).state is DeliveryState.DELIVERED


class Remembering:
    """A channel that signs as configured, and records the destinations that it must disable."""

    def __init__(self, address: Address | None) -> None:
        self.address = address
        self.disabled: list[UUID] = []

    def find_address(self, *_: object) -> Address | None:
        return self.address

    def disable(self, _: Session, destination_id: UUID, address: Address) -> bool:
        self.disabled.append(destination_id)
        return address == self.address


def test_a_channel_is_asked_at_every_attempt(database: Database, server: Server) -> None:
    channel = Remembering(Address(url=server.url("/old"), headers={"X-Signature": "old"}))
    server.on("/old", FAILS)
    server.on("/new", content(b"", status="410 Gone"))
    destination = uuid4()
    delivery_id = enqueue(database, "http://unused/", destination, kind="signed")
    with outbox.sender(database, {"signed": channel}) as sender:
        sender.send_due()
        channel.address = Address(url=server.url("/new"), headers={"X-Signature": "new"})
        let_time_pass(database)
        sender.send_due()
    assert [asked.headers["x-signature"] for asked in server.asked] == ["old", "new"]
    assert channel.disabled == [destination]
    assert read(database, destination, delivery_id).state is DeliveryState.DEAD


def test_a_message_to_a_destination_that_was_removed_is_given_up(database: Database) -> None:
    destination = uuid4()
    delivery_id = enqueue(database, "http://unused/", destination, kind="signed")
    with outbox.sender(database, {"signed": Remembering(None)}) as sender:
        sender.send_due()
    delivery = read(database, destination, delivery_id)
    assert (delivery.state, delivery.last_code) == (DeliveryState.DEAD, "destination_gone")


class Gate:
    """A destination that responds only after it is opened, and counts concurrent requests."""

    def __init__(self) -> None:
        self._opened = threading.Event()
        self._lock = threading.Lock()
        self.waiting = self.most = 0

    def __call__(self, connection: socket.socket) -> None:
        with self._lock:
            self.waiting += 1
            self.most = max(self.most, self.waiting)
        self._opened.wait()
        with self._lock:
            self.waiting -= 1
        OK(connection)

    def open(self) -> None:
        self._opened.set()


@contextmanager
def draining(*senders: Sender) -> Iterator[None]:
    """Run senders during a block, and wait until they have ended."""
    threads = [threading.Thread(target=sender.send_due) for sender in senders]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()


def test_a_slow_destination_holds_up_nobody_else(database: Database, sender: Sender, server: Server) -> None:
    gate = Gate()
    server.on("/slow", gate)
    server.on("/quick", OK)
    slow, quick = uuid4(), uuid4()
    for _ in range(20):
        enqueue(database, server.url("/slow"), slow)
    for _ in range(20):
        enqueue(database, server.url("/quick"), quick)
    with draining(sender):
        wait_until(lambda: Counter(asked.path for asked in server.asked)["/quick"] == 20, "the quick ones")
        assert gate.waiting == 4
        gate.open()
    assert Counter(asked.path for asked in server.asked) == {"/quick": 20, "/slow": 20}
    assert gate.most == 4


def test_a_message_that_comes_during_a_drain_is_sent_in_it(
    database: Database, sender: Sender, server: Server
) -> None:
    gate = Gate()
    server.on("/slow", gate)
    server.on("/quick", OK)
    enqueue(database, server.url("/slow"), uuid4())
    with draining(sender):
        wait_until(lambda: gate.waiting == 1, "the slow one")
        enqueue(database, server.url("/quick"), uuid4())
        assert sender.send_due() == 0
        wait_until(lambda: "/quick" in [asked.path for asked in server.asked], "the quick one")
        gate.open()


def test_two_processes_share_the_work_and_its_bounds(
    database: Database, database_url: str, sender: Sender, server: Server
) -> None:
    gate = Gate()
    server.on("/slow", gate)
    for path in ("/1", "/2", "/3"):
        server.on(path, OK)
    for path in ("/slow", "/1", "/2", "/3"):
        destination = uuid4()
        for _ in range(15):
            enqueue(database, server.url(path), destination, in_flight_limit=3)
    with outbox.sender(database) as other, draining(sender, other):
        wait_until(lambda: len(server.asked) == 45 + 3, "all but the slow ones")
        gate.open()
    assert Counter(asked.path for asked in server.asked) == {"/slow": 15, "/1": 15, "/2": 15, "/3": 15}
    assert gate.most == 3


def test_one_at_a_time_is_in_order(database: Database, server: Server) -> None:
    server.on("/hook", OK)
    channel, destination = Remembering(Address(url=server.url("/hook"))), uuid4()
    bodies = [str(number).encode() for number in range(20)]
    for together in (bodies[:10], bodies[10:]):
        with database.transaction() as session:
            for body in together:
                enqueue_delivery(
                    session,
                    kind="ordered",
                    event="x",
                    destination_id=destination,
                    organization_id=ORGANIZATION,
                    in_flight_limit=1,
                    body=body,
                )
    with outbox.sender(database, {"ordered": channel}) as sender:
        sender.send_due()
    assert [asked.body for asked in server.asked] == bodies


def test_no_connection_is_held_while_a_message_is_on_its_way(database_url: str, server: Server) -> None:
    gate = Gate()
    server.on("/slow", gate)
    single = Database(database_url.replace("postgresql://", "postgresql+psycopg2://", 1), pool_size=1)
    for _ in range(8):
        enqueue(single, server.url("/slow"), uuid4())
    with outbox.sender(single) as sender, draining(sender):
        wait_until(lambda: gate.waiting == 8, "all are on their way")
        single.check()
        gate.open()
    single.dispose()
    assert len(server.asked) == 8


def test_stopped_sender_finishes_attempts_and_claims_nothing(
    database: Database, sender: Sender, server: Server
) -> None:
    gate = Gate()
    server.on("/slow", gate)
    destination = uuid4()
    for _ in range(10):
        enqueue(database, server.url("/slow"), destination)
    with draining(sender):
        wait_until(lambda: gate.waiting == 4, "four are under way")
        sender.stop()
        gate.open()
    assert len(server.asked) == 4
    assert sender.send_due() == 0


class Failing:
    """A channel that cannot read its secrets."""

    def find_address(self, *_: object) -> Address | None:
        raise InvalidToken

    def disable(self, *_: object) -> bool:
        return True


def test_undeliverable_message_is_dropped_and_does_not_block_the_queue(
    database: Database, server: Server
) -> None:
    server.on("/hook", OK)
    destination = uuid4()
    broken = enqueue(database, "http://unused/", uuid4(), kind="broken")
    enqueue(database, server.url("/hook"), destination)
    with outbox.sender(database, {"broken": Failing()}) as sender:
        for _ in range(MAX_LAPSES):
            with pytest.raises(InvalidToken):
                sender.send_due()
            let_time_pass(database)
        assert len(server.asked) == 1
        assert sender.send_due() == 1
    kept = row(database, broken)
    assert (kept.state, kept.last_code) == ("Dead", "interrupted")


POINTS = {
    "deliveries.claimed": 1,
    "deliveries.posted": 2,
    "deliveries.before_commit": 2,
    "deliveries.recorded": 1,
}
"""Where a worker dies, and how often its message arrives in the end."""


@pytest.mark.parametrize(("point", "arrivals"), POINTS.items())
def test_a_message_survives_the_death_of_its_worker(
    database: Database, database_url: str, sender: Sender, server: Server, point: str, arrivals: int
) -> None:
    server.on("/hook", OK)
    destination = uuid4()
    delivery_id = enqueue(database, server.url("/hook"), destination, headers={"X-Id": "the same"})
    assert process_forks.run("tests.shared.deliveries.send_due", database_url, point)[0] == -9
    assert sender.send_due() == 0
    let_time_pass(database)
    sender.send_due()
    assert [asked.headers["x-id"] for asked in server.asked] == ["the same"] * arrivals
    assert read(database, destination, delivery_id).state is DeliveryState.DELIVERED


def test_a_claim_that_was_given_up_records_an_arrival_but_no_failure(database: Database) -> None:
    destination = uuid4()
    delivery_id = enqueue(database, "http://unused/", destination)
    with database.transaction() as session:
        (first,) = claim_due(session, limit=5)
        assert claim_due(session, limit=5) == ()
    let_time_pass(database)
    with database.transaction() as session:
        (second,) = claim_due(session, limit=5)
        record_failed(session, first, status=500, code=None, wait_seconds=5)
    assert read(database, destination, delivery_id).state is DeliveryState.SENDING
    with database.transaction() as session:
        record_delivered(session, first, status=200)
        record_failed(session, second, status=500, code=None, wait_seconds=5)
    assert read(database, destination, delivery_id).state is DeliveryState.DELIVERED


@pytest.mark.parametrize("ordered", [False, True])
def test_attempt_in_flight_is_the_last_after_its_destination_ended(
    database: Database, sender: Sender, server: Server, *, ordered: bool
) -> None:
    server.on("/hook", OK)
    destination = uuid4()
    ids = [enqueue(database, server.url("/hook"), destination, ordered=ordered) for _ in range(3)]
    with database.transaction() as session:
        claims = claim_due(session, limit=2)
        assert give_up(session, destination_id=destination, code="endpoint_removed") == 3
    with database.transaction() as session:
        record_failed(session, claims[0], status=503, code=None, wait_seconds=0)
    let_time_pass(database)
    assert sender.send_due() == 0
    assert server.asked == []
    assert {read(database, destination, at).state for at in ids} == {DeliveryState.DEAD}
    with database.transaction() as session:
        record_delivered(session, claims[0], status=200)
    assert read(database, destination, claims[0].id).state is DeliveryState.DELIVERED


def test_a_destination_is_given_up_while_its_messages_are_set_aside(database: Database) -> None:
    destination = uuid4()
    under_way, waiting = (enqueue(database, "http://unused/", destination) for _ in range(2))
    with database.transaction() as session:
        (claim,) = claim_due(session, limit=1)
    with database.transaction() as session:
        give_up(session, destination_id=destination, code="endpoint_removed")
        with database.transaction() as other:
            postpone(other, claim, wait_seconds=5)  # waits for nobody: it could be waited for
    assert read(database, destination, under_way).state is DeliveryState.DEAD
    assert read(database, destination, waiting).state is DeliveryState.DEAD


def test_one_claimer_at_a_time_looks_for_work(database: Database) -> None:
    enqueue(database, "http://unused/", uuid4())
    found: list[int] = []

    def claim() -> None:
        with database.transaction() as session:
            found.append(len(claim_due(session, limit=5)))

    def is_waiting() -> bool:
        with database.transaction() as session:
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            return bool(session.execute(text(waiting)).scalar())

    second = threading.Thread(target=claim)
    with database.transaction() as session:
        found.append(len(claim_due(session, limit=5)))
        second.start()
        wait_until(is_waiting, "the second claimer waits")
    second.join()
    assert found == [1, 0]


def test_a_long_queue_of_a_busy_destination_hides_nobody(database: Database) -> None:
    busy, hidden = uuid4(), uuid4()
    with database.transaction() as session:
        for destination, count in ((busy, 510), (hidden, 5)):
            for _ in range(count):
                enqueue_delivery(
                    session,
                    kind="test",
                    event="x",
                    destination_id=destination,
                    organization_id=ORGANIZATION,
                    body=b"",
                )
    with database.transaction() as session:
        claimed = [claim.id for claim in claim_due(session, limit=6)]
        claimed += [claim.id for claim in claim_due(session, limit=6)]
        assert claim_due(session, limit=6) == ()
    owners = Counter(row(database, delivery_id).destination_id for delivery_id in claimed)
    assert owners == {busy: 4, hidden: 4}
