"""A pool is shared: no tenant uses it up while others need it, and a refusal names the cause."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from random import Random

import pytest

from shared import failpoints
from shared.fairness.admission import (
    ANONYMOUS,
    ConcurrencyLimited,
    Pool,
    PoolExhausted,
    PoolKey,
    Slot,
    anonymous_key,
)

HOSTILE = PoolKey("hostile", "key")
VICTIM = PoolKey("victim", "key")
NEWCOMER = PoolKey("newcomer", "key")


def make_pool(slots: int = 8, **options: float | int) -> Pool:
    return Pool("test", slots, **{"max_wait_seconds": 0.0, **options})  # type: ignore[arg-type]


def take_all(pool: Pool, key: PoolKey, most: int = 1000) -> list[Slot]:
    """Take as many slots as a key can get at once."""
    taken: list[Slot] = []
    while len(taken) < most and (slot := pool.try_acquire(key)) is not None:
        taken.append(slot)
    return taken


def wait_until_waiting(pool: Pool, number: int) -> None:
    deadline = time.monotonic() + 60
    while pool.waiting != number:
        assert time.monotonic() < deadline, f"{pool.waiting} wait"
        time.sleep(0.002)


def test_a_lone_tenant_leaves_half_of_the_pool_free() -> None:
    pool = make_pool(28)
    assert len(take_all(pool, HOSTILE)) == 14


@pytest.mark.parametrize("slots", [1, 2, 3, 28, 544])
def test_an_empty_pool_serves_anybody(slots: int) -> None:
    pool = make_pool(slots)
    assert take_all(pool, HOSTILE)


@pytest.mark.parametrize("slots", [2, 8, 28, 256])
def test_newcomer_gets_a_slot_beside_a_greedy_tenant(slots: int) -> None:
    pool = make_pool(slots)
    take_all(pool, HOSTILE)
    assert pool.try_acquire(VICTIM) is not None


def test_beside_twenty_greedy_tenants_a_newcomer_is_served_next() -> None:
    pool = make_pool(64, max_wait_seconds=30)
    slots = [slot for n in range(20) for slot in take_all(pool, PoolKey(f"hostile-{n}", "key"))]
    with ThreadPoolExecutor(21) as threads:
        greedy = [threads.submit(pool.acquire, PoolKey(f"hostile-{n}", "key")) for n in range(20)]
        wait_until_waiting(pool, 20)
        newcomer = threads.submit(pool.acquire, NEWCOMER)
        wait_until_waiting(pool, 21)
        for slot in slots[-21:]:
            slot.release()
        newcomer.result(timeout=60).release()
        for slot in slots[:-21]:
            slot.release()
        for each in greedy:
            each.result(timeout=60).release()
    assert pool.in_use == 0


def test_tenant_over_its_share_is_refused_with_retry_after() -> None:
    pool = make_pool(8)
    take_all(pool, HOSTILE)
    with pytest.raises(ConcurrencyLimited) as refused:
        pool.acquire(HOSTILE)
    assert refused.value.retry_after_seconds == 1


def test_a_tenant_that_uses_nothing_is_refused_for_want_of_room() -> None:
    pool = make_pool(1)
    take_all(pool, HOSTILE)
    with pytest.raises(PoolExhausted):
        pool.acquire(VICTIM)


def test_a_released_slot_can_be_taken_again() -> None:
    pool = make_pool(1)
    with pool.acquire(HOSTILE):
        assert pool.in_use == 1
    assert pool.in_use == 0
    with pool.acquire(VICTIM):
        assert pool.use_of("victim") == 1


def test_releasing_twice_gives_back_once() -> None:
    pool = make_pool(4)
    slot = pool.acquire(HOSTILE)
    slot.release()
    slot.release()
    assert pool.in_use == 0


def test_refusals_leave_no_trace_of_a_tenant() -> None:
    pool = make_pool(1)
    with pool.acquire(HOSTILE):
        for number in range(100):
            with pytest.raises(PoolExhausted):
                pool.acquire(PoolKey(number, "key"))
        assert len(pool._tenants) == 1
    assert not pool._tenants
    assert not pool._queued


def test_a_waiting_caller_is_given_the_next_slot() -> None:
    pool = make_pool(1, max_wait_seconds=30)
    first = pool.acquire(HOSTILE)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(pool.acquire, VICTIM)
        wait_until_waiting(pool, 1)
        first.release()
        waiting.result(timeout=60).release()
    assert pool.in_use == 0


def test_who_has_waited_elsewhere_for_long_waits_no_more() -> None:
    pool = make_pool(1, max_wait_seconds=3600)
    with pool.acquire(HOSTILE), pytest.raises(ConcurrencyLimited):
        pool.acquire(HOSTILE, waited_seconds=3600)
    assert (pool.in_use, pool.waiting) == (0, 0)


def served_order(pool: Pool, keys: list[PoolKey]) -> list[PoolKey]:
    """Queue these callers for a pool of one slot; return the order in which they are served."""
    held = pool.acquire(PoolKey("holder", "key"))
    order: list[PoolKey] = []

    def wait(key: PoolKey) -> None:
        with pool.acquire(key):
            order.append(key)

    threads = []
    for number, key in enumerate(keys):
        threads.append(threading.Thread(target=wait, args=(key,)))
        threads[-1].start()
        wait_until_waiting(pool, number + 1)
    held.release()
    for thread in threads:
        thread.join(timeout=60)
    return order


def test_slots_that_become_free_go_round_robin_over_tenants() -> None:
    pool = make_pool(1, waiting=100, max_wait_seconds=30)
    order = served_order(pool, [HOSTILE] * 6 + [VICTIM] * 2)
    assert order[1] == VICTIM
    assert order[3] == VICTIM


def test_within_a_tenant_slots_go_round_robin_over_its_members() -> None:
    pool = make_pool(1, waiting=100, max_wait_seconds=30)
    busy, quiet = PoolKey("tenant", "busy"), PoolKey("tenant", "quiet")
    assert served_order(pool, [busy] * 5 + [quiet])[1] == quiet


def test_the_room_for_waiting_is_shared_too() -> None:
    pool = make_pool(1, max_wait_seconds=30, waiting=8)

    def take_and_release(key: PoolKey) -> None:
        pool.acquire(key).release()

    held = pool.acquire(HOSTILE)
    with ThreadPoolExecutor(16) as threads:
        waiting = [threads.submit(take_and_release, HOSTILE) for _ in range(12)]
        completed = as_completed(waiting, timeout=60)
        refused = [next(completed) for _ in range(8)]
        wait_until_waiting(pool, 4)
        victim = threads.submit(take_and_release, VICTIM)
        wait_until_waiting(pool, 5)
        held.release()
        assert victim.result(timeout=60) is None
    assert all(isinstance(each.exception(), ConcurrencyLimited) for each in refused)
    assert (pool.in_use, pool.waiting) == (0, 0)


def test_anonymous_clients_are_one_tenant() -> None:
    pool = make_pool(64)
    taken = [slot for number in range(200) for slot in take_all(pool, anonymous_key(f"10.0.{number}.1"), 1)]
    assert len(taken) == 32
    assert len(take_all(pool, VICTIM)) >= 16


def test_one_address_leaves_room_for_other_anonymous_clients() -> None:
    pool = make_pool(64)
    take_all(pool, anonymous_key("203.0.113.7"))
    assert pool.try_acquire(anonymous_key("198.51.100.9")) is not None


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:203.0.113.7", "203.0.113.7", True),
        ("203.0.113.7", "203.0.113.8", False),
        ("fe80::1%eth0", "fe80::2", True),
    ],
)
def test_anonymous_ipv6_client_counts_by_its_network(one: str, other: str, is_same: bool) -> None:
    assert (anonymous_key(one) == anonymous_key(other)) is is_same
    assert anonymous_key(one).tenant == ANONYMOUS


def test_anonymous_clients_are_limited_while_tenants_still_get_slots() -> None:
    pool = make_pool(8)
    for number in range(8):
        take_all(pool, anonymous_key(f"10.0.{number}.1"), 1)
    with pytest.raises(ConcurrencyLimited):
        pool.acquire(anonymous_key("203.0.113.7"))
    take_all(pool, VICTIM)
    take_all(pool, HOSTILE)
    assert pool.in_use == pool.slots
    with pytest.raises(PoolExhausted):
        pool.acquire(anonymous_key("203.0.113.7"))


@pytest.mark.parametrize("address", [None, "", "nonsense", ":::", "unix:"])
def test_invalid_address_counts_as_anonymous(address: str | None) -> None:
    assert anonymous_key(address).tenant == ANONYMOUS


def test_a_slot_moves_to_the_tenant_whose_credential_was_verified() -> None:
    pool = make_pool(4)
    slot = pool.acquire(anonymous_key("203.0.113.7"))
    slot.move(VICTIM)
    assert (pool.use_of(ANONYMOUS), pool.use_of("victim"), pool.in_use) == (0, 1, 1)
    slot.release()
    assert pool.in_use == 0


def test_a_slot_that_may_not_move_is_given_back() -> None:
    pool = make_pool(8)
    take_all(pool, HOSTILE)
    slot = pool.acquire(anonymous_key("203.0.113.7"))
    with pytest.raises(ConcurrencyLimited):
        slot.move(HOSTILE)
    slot.release()
    assert pool.use_of(ANONYMOUS) == 0
    assert pool.in_use == 4


def test_a_move_that_waits_does_not_keep_strangers_out() -> None:
    pool = make_pool(2, max_wait_seconds=30, waiting=8)
    held = pool.acquire(HOSTILE)
    slot = pool.acquire(anonymous_key("203.0.113.7"))
    with ThreadPoolExecutor(1) as threads:
        moving = threads.submit(slot.move, HOSTILE)
        wait_until_waiting(pool, 1)
        assert pool.try_acquire(anonymous_key("198.51.100.9")) is not None
        held.release()
        moving.result(timeout=60)


def test_tenants_at_their_limit_are_listed() -> None:
    pool = make_pool(8)
    take_all(pool, HOSTILE)
    pool.acquire(VICTIM)
    assert pool.tenants_at_limit() == ["hostile"]


@pytest.fixture
def unfair() -> Iterator[None]:
    failpoints.arm("admission.unfair")
    yield
    failpoints._armed.clear()


@pytest.mark.usefixtures("unfair")
def test_without_shares_one_tenant_takes_all() -> None:
    pool = make_pool(28)
    assert len(take_all(pool, HOSTILE)) == 28
    assert pool.try_acquire(VICTIM) is None


def test_slots_are_neither_lost_nor_doubled_by_many_threads() -> None:
    pool = make_pool(7, max_wait_seconds=0.002, waiting=5)
    most = 0
    lock = threading.Lock()

    def work(seed: int) -> None:
        nonlocal most
        random = Random(seed)
        for _ in range(300):
            key = PoolKey(random.randrange(4), random.randrange(3))
            key = anonymous_key(f"10.0.0.{key.member}") if key.tenant == 0 else key
            try:
                with pool.acquire(key) as slot:
                    with lock:
                        most = max(most, pool.in_use)
                    if random.random() < 0.3:
                        slot.move(PoolKey(random.randrange(1, 4), 0))
            except (ConcurrencyLimited, PoolExhausted):
                continue

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert most <= 7
    assert (pool.in_use, pool.waiting, pool._tenants, pool._queued) == (0, 0, {}, {})
