"""The share of an organization: its maximum alone, and the slots left for newcomers."""

from collections import Counter, deque
from contextlib import ExitStack
from dataclasses import replace

import pytest
import redis

from deploy.embedded.valkey import EmbeddedValkey
from shared import failpoints
from shared.credits.open_calls import OpenCalls
from shared.ids import new_id
from shared.messaging.valkey import connect_valkey
from shared.models import concurrency_limits as shares_module
from shared.models.call_admission import CallAdmission
from shared.models.concurrency_limits import KEY, Shares, SlotAnnouncer, read_slots, share_of
from shared.models.reply_timeouts import replies
from tests.shared.models.model_calls import ModelCalls
from tests.support.processes.stack import wait_until

SLOTS = 512


class Service:
    """Calls that never end, admitted by the rule."""

    def __init__(self, slots: int = SLOTS) -> None:
        self.slots = slots
        self.calls: Counter[tuple[str, str]] = Counter()

    def of(self, organization: str) -> int:
        return sum(count for (name, _), count in self.calls.items() if name == organization)

    def admit(self, organization: str, provider: str) -> bool:
        by_provider: Counter[str] = Counter()
        for (_, name), count in self.calls.items():
            by_provider[name] += count
        organizations = len({name for name, _ in self.calls})
        counted = OpenCalls(total=self.calls.total(), organizations=organizations, by_provider=by_provider)
        is_admitted = self.of(organization) < share_of(self.slots, counted, provider)
        if is_admitted:
            self.calls[organization, provider] += 1
        return is_admitted

    def flood(self, *organizations: str, provider: str) -> None:
        waiting = deque(organizations)
        while waiting:
            name = waiting.popleft()
            if self.admit(name, provider):
                waiting.append(name)


def test_single_organization_uses_nearly_half_of_the_slots() -> None:
    service = Service()
    service.flood("greedy", provider="slow")
    assert service.of("greedy") == SLOTS * 7 // 16
    assert service.admit("other", "slow")
    assert service.admit("other", "quick")


@pytest.mark.parametrize("greedy", [1, 2, 5, 20, 60])
def test_however_many_flood_one_provider_a_newcomer_is_admitted_there_and_elsewhere(greedy: int) -> None:
    service = Service()
    service.flood(*(f"greedy-{number}" for number in range(greedy)), provider="slow")
    assert service.admit("newcomer", "slow")
    others = sum(service.admit(f"other-{number}", "quick") for number in range(20))
    assert others == 20


@pytest.mark.parametrize("slots", [1, 2, 3, 8])
def test_few_slots_are_used_too(slots: int) -> None:
    assert Service(slots).admit("lone", "one")


def test_no_call_is_admitted_without_slots() -> None:
    full = OpenCalls(total=8, organizations=3, by_provider={"slow": 8})
    assert share_of(8, full, "quick") == 0


@pytest.fixture
def valkey(valkey_server: EmbeddedValkey) -> redis.Redis:
    """A database in which no worker of other tests has announced itself."""
    valkey = connect_valkey(valkey_server.url.rpartition("/")[0] + "/13")
    valkey.flushdb()
    return valkey


def test_slots_are_those_of_workers_that_live(valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares_module, "ANNOUNCEMENT_TTL_SECONDS", 600.0)
    monkeypatch.setattr(shares_module, "ANNOUNCE_SECONDS", 0.1)
    assert read_slots(valkey) is None
    first, second = SlotAnnouncer(valkey, 5), SlotAnnouncer(valkey, 7)
    first.start()
    second.start()
    wait_until(lambda: read_slots(valkey) == 12, "both have announced themselves")
    first.stop()
    assert read_slots(valkey) == 7
    second._thread.stop(wait=True)  # killed
    monkeypatch.setattr(shares_module, "ANNOUNCEMENT_TTL_SECONDS", 0.1)
    second._announce_slots()  # a moment before
    wait_until(lambda: read_slots(valkey) is None, "the dead one is forgotten")
    second.stop()
    assert not valkey.exists(KEY)


def test_shares_follow_the_workers_and_count_what_this_process_began(
    calls: ModelCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = Shares(calls.database, calls.valkey, slots_when_unknown=1000)
    monkeypatch.setattr("shared.models.concurrency_limits.SNAPSHOT_SECONDS", 3600.0)
    assert shares.of("p") == 875
    for _ in range(400):
        shares.begin(new_id(), "p")
    assert shares.of("p") == 475
    monkeypatch.setattr("shared.models.concurrency_limits.SNAPSHOT_SECONDS", 0.01)
    announced = SlotAnnouncer(calls.valkey, 8)
    announced.start()
    wait_until(lambda: shares.of("p") == 7, "the worker is known, and calls that are not open are forgotten")
    announced.stop()
    monkeypatch.setitem(failpoints._armed, "admission.unfair", 0)
    assert Shares(calls.database, calls.valkey, slots_when_unknown=1).of("p") is None


def test_concurrent_attempts_of_an_organization_share_the_free_slots(calls: ModelCalls) -> None:
    shares, mine = Shares(calls.database, calls.valkey, slots_when_unknown=32), new_id()
    with ExitStack() as attempts:
        given = [attempts.enter_context(shares.attempt(mine, "p")) for _ in range(30)]
        with shares.attempt(new_id(), "p") as other:
            assert other == 28, "another organization's attempts count for itself"
    assert given[0] == 28
    assert sum(number < (share or 0) for number, share in enumerate(given)) == 14
    with shares.attempt(mine, "p") as later:
        assert later == 28


def test_shares_are_known_without_valkey(calls: ModelCalls) -> None:
    away = Shares(calls.database, connect_valkey("redis://127.0.0.1:1"), slots_when_unknown=16)
    assert away.of("p") == 14


def test_quick_calls_in_succession_need_no_new_count(
    calls: ModelCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.models.concurrency_limits.SNAPSHOT_SECONDS", 3600.0)
    shares = Shares(calls.database, calls.valkey, slots_when_unknown=4)
    admission = CallAdmission(calls.database, shares, calls.executor.slots, max_wait_seconds=0.0)
    invoker = replace(calls.invoker, admission=admission)
    quick = replace(calls, invoker=invoker)
    for number in range(20):
        inbox = quick.chat(f"call {number}")
        calls.execute(inbox)
        assert list(replies(invoker, inbox))[-1] is not None
    assert calls.discrepancies() == []


def test_a_call_of_this_process_counts_once_until_it_ends(
    calls: ModelCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.models.concurrency_limits.SNAPSHOT_SECONDS", 0.0)
    shares = Shares(calls.database, calls.valkey, slots_when_unknown=16)
    other = CallAdmission(calls.database, shares, calls.executor.slots, max_wait_seconds=0.0)
    inbox = replace(calls, invoker=replace(calls.invoker, admission=other)).chat("hello")
    assert [shares.of("scripted") for _ in range(3)] == [13, 13, 13]
    monkeypatch.setattr("shared.models.concurrency_limits.SNAPSHOT_SECONDS", 3600.0)
    shares.end(inbox.address.invocation_id)
    assert shares.of("scripted") == 14
    monkeypatch.setattr("shared.models.concurrency_limits.SNAPSHOT_SECONDS", 0.0)
    assert shares.of("scripted") == 13  # given up here, it is still open
    inbox.close()
