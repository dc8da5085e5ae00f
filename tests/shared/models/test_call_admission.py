"""A call beyond its organization's share waits fairly and for a bounded time; the refusal names the right limit."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from uuid import UUID, uuid4

import pytest

from deploy.embedded.valkey import EmbeddedValkey
from shared.credits import holds
from shared.credits.errors import InsufficientCredits
from shared.db.database import Database
from shared.fairness.admission import ConcurrencyLimited, Pool, PoolKey
from shared.ids import new_id
from shared.messaging.valkey import connect_valkey
from shared.models import call_admission
from shared.models.call_admission import CallAdmission, ModelsOverloaded
from shared.models.concurrency_limits import Shares
from shared.models.model_slots import ModelSlots
from tests.shared.credits.calls import Calls
from tests.support.data.identity import IdentityFactory, make_settings
from tests.support.models.prices import prices_of
from tests.support.processes.stack import wait_until


class Share(Shares):
    """A share that a test sets."""

    def __init__(self, share: int) -> None:
        self.share = share

    @contextmanager
    def attempt(self, organization_id: UUID, provider: str) -> Iterator[int | None]:  # noqa: ARG002 (as the real one)
        yield self.share

    def begin(self, invocation_id: UUID, provider: str) -> None:
        """Nothing is counted here."""

    def end(self, invocation_id: UUID) -> None:
        """Nothing is counted here."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_admission, "RETRY_SECONDS", 0.02)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(64) as pool:
        yield pool


class Tenants:
    """Organizations with credits, and one process's admission of their calls."""

    def __init__(self, database: Database, slots: ModelSlots, share: int) -> None:
        self._factory = IdentityFactory(database, make_settings())
        self._database = database
        self.share = Share(share)
        self.admission = CallAdmission(database, self.share, slots, max_wait_seconds=20.0)

    def organization(self) -> Calls:
        calls = Calls(self._database, self._factory.organization().id)
        calls.top_up(1000)
        return calls

    def hold(
        self, calls: Calls, member: object = None, *, model: str = "acme/any", limit: int | None = None
    ) -> UUID:
        invocation = replace(calls.new(0, model=model), provider="p")
        try:
            self.admission.hold(invocation, PoolKey(calls.organization_id, member), limit=limit)
        except BaseException:
            self.admission.end(invocation.id)
            raise
        return invocation.id

    def end(self, calls: Calls, invocation_id: UUID) -> None:
        """End a call."""
        calls.void(invocation_id)
        self.admission.end(invocation_id)


@pytest.fixture
def slots(valkey_server: EmbeddedValkey) -> Iterator[ModelSlots]:
    with connect_valkey(valkey_server.url) as valkey, closing(ModelSlots(valkey)) as slots:
        yield slots


@pytest.fixture
def tenants(database: Database, slots: ModelSlots) -> Tenants:
    return Tenants(database, slots, share=2)


def test_more_calls_than_the_share_all_get_their_turn(tenants: Tenants, threads: ThreadPoolExecutor) -> None:
    one = tenants.organization()

    def call(_: int) -> None:
        one.void(tenants.hold(one))

    list(threads.map(call, range(60)))
    assert one.discrepancies() == []


def test_a_call_that_waited_in_vain_is_limited_and_nothing_is_held(
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenants.admission, "_max_wait_seconds", 0.1)
    one, other = tenants.organization(), tenants.organization()
    for _ in range(2):
        tenants.hold(one)
    with pytest.raises(ConcurrencyLimited) as raised:
        tenants.hold(one)
    assert raised.value.retry_after_seconds
    tenants.hold(other)
    assert one.discrepancies() == []


def test_one_that_never_rests_leaves_others_the_slots_of_a_model(
    tenants: Tenants, slots: ModelSlots, threads: ThreadPoolExecutor, database: Database
) -> None:
    """Even if the call ended in another web process."""
    tenants.share.share = 100
    elsewhere = Tenants(database, slots, share=100)
    restless, other = tenants.organization(), elsewhere.organization()
    is_over = threading.Event()

    def never_rest() -> None:
        while not is_over.is_set():
            tenants.end(restless, tenants.hold(restless, model="acme/two", limit=2))

    crowd = [threads.submit(never_rest) for _ in range(8)]
    wait_until(lambda: tenants.admission._waiting_calls.in_use > 3, "they fill the model and wait")
    for _ in range(5):
        elsewhere.end(other, elsewhere.hold(other, model="acme/two", limit=2))
    is_over.set()
    for at in crowd:
        at.result()
    assert restless.discrepancies() == other.discrepancies() == []


def test_wait_for_one_model_does_not_delay_another(tenants: Tenants, threads: ThreadPoolExecutor) -> None:
    one = tenants.organization()
    first = tenants.hold(one, model="acme/one", limit=1)
    waiting = threads.submit(tenants.hold, one, model="acme/one", limit=1)
    wait_until(lambda: tenants.admission._waiting_calls.in_use == 1, "it waits")
    tenants.end(one, tenants.hold(one, model="acme/other", limit=1))
    tenants.end(one, tenants.hold(one))
    tenants.end(one, first)
    tenants.end(one, waiting.result(60))


def test_refusal_names_the_limit_that_a_model_reached(
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenants.admission, "_max_wait_seconds", 0.0)
    one, other = tenants.organization(), tenants.organization()
    held = tenants.hold(one, model="acme/single", limit=1)
    for calls, refusal in ((one, ConcurrencyLimited), (other, ModelsOverloaded)):
        with pytest.raises(refusal):
            tenants.hold(calls, model="acme/single", limit=1)
    tenants.end(one, held)


def test_wait_for_a_thread_is_deducted_from_the_wait_for_a_share(tenants: Tenants) -> None:
    one = tenants.organization()
    for _ in range(2):
        tenants.hold(one)
    invocation = replace(one.new(0), provider="p")
    with pytest.raises(ConcurrencyLimited):
        tenants.admission.hold(invocation, PoolKey(one.organization_id, None), waited_seconds=20.0)


def test_organization_without_calls_gets_an_overload(
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenants.admission, "_max_wait_seconds", 0.1)
    tenants.share.share = 0
    with pytest.raises(ModelsOverloaded):
        tenants.hold(tenants.organization())


def test_credentials_of_an_organization_take_turns(tenants: Tenants, threads: ThreadPoolExecutor) -> None:
    one = tenants.organization()
    open_calls = [tenants.hold(one) for _ in range(2)]
    admitted: list[str] = []
    lock = threading.Lock()

    def call(member: str) -> None:
        invocation_id = tenants.hold(one, member)
        with lock:
            admitted.append(member)
            open_calls.append(invocation_id)

    def admitted_more_than(count: int) -> bool:
        return len(admitted) > count

    waiting: list[Future[None]] = []
    for member in ["many"] * 10 + ["few"]:
        waiting.append(threads.submit(call, member))
        wait_until(lambda: tenants.admission._waiting_calls.in_use == len(waiting), "it waits")
    while len(admitted) < 3:
        before = len(admitted)
        one.void(open_calls.pop(0))
        wait_until(partial(admitted_more_than, before), "the next is admitted")
    assert "few" in admitted
    while not all(at.done() for at in waiting):
        if open_calls:
            one.void(open_calls.pop(0))


def test_the_end_of_a_call_lets_the_next_try_at_once(
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch, threads: ThreadPoolExecutor
) -> None:
    monkeypatch.setattr(call_admission, "RETRY_SECONDS", 3600.0)
    one = tenants.organization()
    open_calls = [tenants.hold(one) for _ in range(2)]
    waiting = threads.submit(tenants.hold, one)
    wait_until(lambda: tenants.admission._share_queue.has(one.organization_id), "it waits")
    one.void(open_calls[0])
    tenants.admission.end(open_calls[0])
    open_calls.append(waiting.result(60))
    assert one.discrepancies() == []


def test_only_so_many_wait(
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch, threads: ThreadPoolExecutor
) -> None:
    monkeypatch.setattr(tenants.admission, "_waiting_calls", Pool("waiting", 4))
    monkeypatch.setattr(tenants.admission, "_max_wait_seconds", 20.0)
    one, other = tenants.organization(), tenants.organization()
    held = [tenants.hold(one) for _ in range(2)]
    waiting = [threads.submit(tenants.hold, one) for _ in range(2)]
    wait_until(lambda: tenants.admission._waiting_calls.in_use == 2, "they wait")
    with pytest.raises(ConcurrencyLimited):
        tenants.hold(one)
    tenants.hold(other)
    for invocation_id in held:
        one.void(invocation_id)
    for at in waiting:
        at.result()


def test_a_call_that_cannot_be_paid_does_not_wait(tenants: Tenants) -> None:
    one = tenants.organization()
    for _ in range(2):
        tenants.hold(one)
    dear = holds.NewInvocation(
        id=new_id(),
        organization_id=one.organization_id,
        model="m",
        hold=1001,
        prices=prices_of(prompt=1, completion=1),
        estimated_prompt_tokens=1,
        attribution=holds.Attribution(user_id=uuid4()),
        provider="p",
    )
    with pytest.raises(InsufficientCredits):
        tenants.admission.hold(dear, PoolKey(one.organization_id, None))
