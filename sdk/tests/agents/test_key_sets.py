"""The key set cache: when keys are fetched, and which keys it returns meanwhile."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from quartermaster.key_sets import KEEP_SECONDS, PAUSE_SECONDS, KeySet, KeysUnavailable
from sdk.tests.agents.signer import Signer


class Publisher:
    """Publishes a key set, and counts its requests; the test sets the clock."""

    def __init__(self) -> None:
        self.signer = Signer()
        self.fetches = 0
        self.fails = False
        self.now = 1000.0
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.keys = KeySet("https://unused.example", fetch=self.fetch, clock=lambda: self.now)

    def fetch(self, _: str) -> Any:
        self.fetches += 1
        assert self.may_answer.wait(60)
        if self.fails:
            raise httpx.ConnectError("away")
        return self.signer.key_set


@pytest.fixture
def publisher() -> Publisher:
    return Publisher()


def test_keys_are_kept_for_five_minutes(publisher: Publisher) -> None:
    assert publisher.keys.find("key-1") is not None
    publisher.now += KEEP_SECONDS - 1
    assert publisher.keys.is_ready("key-1")
    assert publisher.keys.find("key-1") is not None
    assert publisher.fetches == 1
    publisher.now += 2
    assert not publisher.keys.is_ready("key-1")
    assert publisher.keys.find("key-1") is not None
    assert publisher.fetches == 2


def test_unknown_ids_make_one_fetch_in_thirty_seconds(publisher: Publisher) -> None:
    publisher.keys.find("key-1")
    publisher.now += PAUSE_SECONDS + 1
    assert [publisher.keys.find(f"guess-{at}") for at in range(20)] == [None] * 20
    assert publisher.fetches == 2


def test_a_new_key_is_found_by_its_first_token(publisher: Publisher) -> None:
    publisher.keys.find("key-1")
    publisher.now += PAUSE_SECONDS + 1
    publisher.signer = Signer("key-2")
    assert publisher.keys.find("key-2") is not None
    # A fetch replaces the set, so a revoked key is gone.
    assert publisher.keys.find("key-1") is None


def test_one_thread_fetches_for_all(publisher: Publisher) -> None:
    publisher.may_answer.clear()
    with ThreadPoolExecutor(8) as threads:
        found = [threads.submit(publisher.keys.find, "key-1") for _ in range(8)]
        publisher.may_answer.set()
        assert all(at.result() is not None for at in found)
    assert publisher.fetches == 1


def test_a_known_key_serves_while_another_thread_fetches(publisher: Publisher) -> None:
    publisher.keys.find("key-1")
    publisher.now += KEEP_SECONDS + 1
    publisher.may_answer.clear()
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(publisher.keys.find, "key-1")
        # Until the other thread is in its fetch, and holds the lock.
        while publisher.fetches < 2:
            pass
        assert publisher.keys.find("key-1") is not None
        publisher.may_answer.set()
        assert slow.result() is not None


def test_old_keys_stay_while_the_service_does_not_answer(publisher: Publisher) -> None:
    publisher.keys.find("key-1")
    publisher.now += KEEP_SECONDS + 1
    publisher.fails = True
    assert publisher.keys.find("key-1") is not None
    with pytest.raises(KeysUnavailable):
        publisher.keys.find("key-2")


def test_the_first_fetch_may_fail_and_the_next_one_serves(publisher: Publisher) -> None:
    publisher.fails = True
    for _ in range(3):
        with pytest.raises(KeysUnavailable):
            publisher.keys.find("key-1")
    assert publisher.fetches == 1
    publisher.fails = False
    publisher.now += 2
    assert publisher.keys.find("key-1") is not None


@pytest.mark.parametrize("document", [None, [], {}, {"keys": 1}, "keys"], ids=str)
def test_what_is_no_key_set_replaces_none(publisher: Publisher, document: Any) -> None:
    publisher.keys.find("key-1")
    publisher.now += KEEP_SECONDS + 1
    keys = KeySet("https://unused.example", fetch=lambda _: document)
    with pytest.raises(KeysUnavailable):
        keys.find("key-1")


def test_keys_of_another_kind_are_passed_over() -> None:
    others = [
        {"kty": "RSA", "kid": "rsa", "n": "AQAB", "e": "AQAB"},
        {"kty": "EC", "crv": "P-256", "kid": "bad"},
        7,
    ]
    keys = KeySet("https://unused.example", fetch=lambda _: {"keys": [*others, *Signer().key_set["keys"]]})
    assert keys.find("key-1") is not None
    assert keys.find("rsa") is None
    assert keys.find("bad") is None
