"""Send due messages. Many are sent at once, but only a few to one destination or for one organization.

A process has one sender with its own threads, which organizations share (`shared/fairness/admission.py`). So slow
destinations block neither each other nor other jobs. One call of `send_due` at a time is the drain: it claims
messages and passes them to threads. If the process crashes, the message becomes due again when its lease ends, so a
message may be delivered more than once.
"""

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from shared import failpoints
from shared.config.settings import Settings
from shared.db.database import Database, Session
from shared.deliveries.channels import Address, Channel
from shared.deliveries.circuit_breaker import CircuitBreakers, Origin, origin_of
from shared.deliveries.claims import (
    Claim,
    Claimed,
    Claimer,
    find_claimed,
    postpone,
    record_dead,
    record_delivered,
    record_failed,
)
from shared.deliveries.ordering import lock_order
from shared.deliveries.outbox import give_up
from shared.deliveries.schedule import wait_seconds
from shared.deliveries.sealed_addresses import SealedAddresses
from shared.egress.errors import EgressError
from shared.egress.policy import EgressPolicy
from shared.egress.post import post
from shared.encryption import Encryption
from shared.fairness.admission import Pool, PoolKey, Slot
from shared.fairness.fair_queueing import RoundRobin
from shared.observability.telemetry import DELIVERIES, get_logger
from shared.runtime.batches import must_stop

log = get_logger(__name__)

ATTEMPT_SECONDS = 10.0
"""The time within which a destination must respond."""
CONNECT_SECONDS = 3.0
"""The time within which each IP address of a destination must accept the connection."""
SLOW_SECONDS = 2.5
"""A failed attempt that took at least this long opens the server's circuit breaker."""
MAX_LAPSES = 10
"""The message is given up after so many consecutive workers died while they sent it."""
GONE = 410
DESTINATION_GONE = "destination_gone"
INTERRUPTED = "interrupted"
_SUCCESSES = range(200, 300)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The result of posting a message once."""

    status: int | None = None
    code: str | None = None
    is_final: bool = False
    retry_after_seconds: int | None = None


class Sender:
    """Claims and sends due messages, with the threads of one process."""

    def __init__(self, database: Database, settings: Settings, channels: Mapping[str, Channel]) -> None:
        self._database = database
        self._policy = EgressPolicy.of(settings)
        self._channels = channels
        self._sealed = SealedAddresses(Encryption(settings))
        self._concurrency = settings.concurrent_deliveries
        self._threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix="sender")
        self._pool = Pool("deliveries", self._concurrency)
        self._rotation = RoundRobin()
        self._breakers = CircuitBreakers()
        self._changed = threading.Condition()
        self._is_draining = False
        self._is_asked = False
        self._is_stopping = False
        self._under_way = 0
        self._failure: BaseException | None = None

    def send_due(self) -> int:
        """Send messages until none is due. Return the number of attempts.

        If another call is running, return 0 immediately; the running call then checks for due messages again. If an
        internal error occurred, raise the last one after the other messages were sent.
        """
        with self._changed:
            self._is_asked = True
            self._changed.notify_all()
            # Return without claiming: the running drain reads `_is_asked` and checks for due messages again.
            if self._is_draining or self._is_stopping:
                return 0
            self._is_draining = True
        try:
            attempts = self._drain()
        except BaseException:
            self._is_draining = False
            raise
        # Raise the failure after the other messages were sent, so that the job fails and is retried.
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return attempts

    def stop(self) -> None:
        """Stop claiming messages. The drain ends when its attempts have ended, which takes at most ATTEMPT_SECONDS."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()

    def close(self) -> None:
        """Stop claiming messages, and wait until all attempts in flight have ended."""
        self.stop()
        self._threads.shutdown()

    def _drain(self) -> int:
        attempts = 0
        while self._wait_for_work():
            claims = self._claim()
            failpoints.hit("deliveries.claimed")
            with self._changed:
                self._under_way += len(claims)
                # Claim again after this batch: more messages may be due than there were idle threads.
                self._is_asked |= bool(claims)
            for claim, slot in claims:
                self._threads.submit(self._deliver, claim, slot)
            attempts += len(claims)
            if must_stop():
                with self._changed:
                    self._is_draining = False
                break
        return attempts

    def _claim(self) -> list[tuple[Claim, Slot]]:
        """Claim at most as many messages as there are idle threads. Return each with a slot for its organization."""
        claims: list[tuple[Claim, Slot]] = []
        try:
            with self._database.transaction() as session:
                claimer = Claimer(session, self._rotation)
                while self._pool.in_use < self._pool.slots:
                    claim = claimer.claim(self._pool.tenants_at_limit())
                    if claim is None:
                        break
                    key = PoolKey(claim.organization_id, claim.destination_id)
                    claims.append((claim, self._pool.acquire(key)))
        except BaseException:
            for _, slot in claims:
                slot.release()
            raise
        return claims

    def _wait_for_work(self) -> bool:
        """Wait until a message may be claimable. Return False if the drain should end."""
        with self._changed:
            self._changed.wait_for(lambda: self._may_claim() or self._under_way == 0)
            if not self._may_claim():
                # Set this under the lock that send_due() takes, so that a later call of send_due() starts a new drain.
                self._is_draining = False
                return False
            self._is_asked = False
            return True

    def _may_claim(self) -> bool:
        return self._is_asked and not self._is_stopping and self._under_way < self._concurrency

    def _deliver(self, claim: Claim, slot: Slot) -> None:
        try:
            with slot:
                self._attempt(claim)
        except BaseException as failure:  # noqa: BLE001 (the draining thread raises it)
            self._failure = failure
        with self._changed:
            self._under_way -= 1
            # Check for work again: another message of the destination or organization may have waited for this
            # attempt to end.
            self._is_asked = True
            self._changed.notify_all()

    def _attempt(self, claim: Claim) -> None:
        with self._database.transaction() as session:
            claimed = find_claimed(session, claim)
            # The lease expired and another process has claimed the message, so leave the message to that process.
            if claimed is None:
                return
            address = self._find_address(session, claimed)
        origin = None if address is None else origin_of(claim.organization_id, address.url)
        if origin is not None and (wait_seconds := self._breakers.admit(origin)):
            self._set_aside(claim, claimed, wait_seconds)
            return
        attempt = self._post(claimed, address, origin)
        failpoints.hit("deliveries.posted")
        with self._database.transaction() as session:
            outcome = self._record(session, claim, claimed, address, attempt)
            failpoints.hit("deliveries.before_commit")
        failpoints.hit("deliveries.recorded")
        DELIVERIES.labels(claimed.kind, outcome).inc()
        log.info(
            "delivery.attempted",
            delivery_id=claim.id,
            kind=claimed.kind,
            outcome=outcome,
            attempt=claimed.attempts + 1,
            status=attempt.status,
            code=attempt.code,
        )

    def _set_aside(self, claim: Claim, claimed: Claimed, wait_seconds: float) -> None:
        with self._database.transaction() as session:
            postpone(session, claim, wait_seconds=wait_seconds)
        DELIVERIES.labels(claimed.kind, "set_aside").inc()

    def _find_address(self, session: Session, claimed: Claimed) -> Address | None:
        if claimed.lapses >= MAX_LAPSES:
            # Do not read the address: reading it may have caused the deaths of the workers.
            return None
        return self._channel(claimed).find_address(session, claimed.message)

    def _channel(self, claimed: Claimed) -> Channel:
        # If the kind has no channel, the message stores its own address.
        return self._channels.get(claimed.kind, self._sealed)

    def _post(self, claimed: Claimed, address: Address | None, origin: Origin | None) -> Attempt:
        if claimed.lapses >= MAX_LAPSES:
            return Attempt(code=INTERRUPTED, is_final=True)
        if address is None or origin is None:
            return Attempt(code=DESTINATION_GONE, is_final=True)
        message = claimed.message
        headers = {"Content-Type": message.content_type, **address.headers}
        started_at = time.monotonic()
        try:
            posted = post(
                address.url,
                body=message.body if address.body is None else address.body,
                headers=headers,
                policy=self._policy,
                deadline_seconds=ATTEMPT_SECONDS,
                connect_seconds=CONNECT_SECONDS,
            )
        except BaseException as error:
            # Measure every failure, even a refused connection: a slow failure has occupied a slot for a long time.
            self._breakers.failed(origin, is_slow=time.monotonic() - started_at >= SLOW_SECONDS)
            if not isinstance(error, EgressError):
                raise
            return Attempt(code=error.code, is_final=not error.is_transient)
        self._breakers.answered(origin)
        return Attempt(status=posted.status, retry_after_seconds=posted.retry_after_seconds)

    def _record(
        self, session: Session, claim: Claim, claimed: Claimed, address: Address | None, attempt: Attempt
    ) -> str:
        """Record the result of an attempt. Return the result's label for metrics."""
        if attempt.status is not None and attempt.status in _SUCCESSES:
            record_delivered(session, claim, status=attempt.status)
            return "delivered"
        attempts = claimed.attempts + 1
        if attempt.status == GONE and address is not None and self._disable(session, claimed, address):
            self._end_destination(session, claim, claimed, attempt)
            return "dead"
        if attempt.is_final or attempts >= claimed.attempt_limit:
            record_dead(session, claim, status=attempt.status, code=attempt.code)
            return "dead"
        wait = wait_seconds(attempts, attempt.retry_after_seconds)
        record_failed(session, claim, status=attempt.status, code=attempt.code, wait_seconds=wait)
        return "failed"

    def _disable(self, session: Session, claimed: Claimed, address: Address) -> bool:
        """Disable a destination that responded 410. Return False if its address has changed since the attempt."""
        return self._channel(claimed).disable(session, claimed.message.destination_id, address)

    def _end_destination(self, session: Session, claim: Claim, claimed: Claimed, attempt: Attempt) -> None:
        """Mark the message that got the 410 as dead, and give up all other messages to the destination."""
        # Lock the order before any row is locked, because record_dead() and give_up() take this lock too.
        lock_order(session, claim.destination_id)
        record_dead(session, claim, status=attempt.status, code=attempt.code)
        give_up(
            session,
            destination_id=claim.destination_id,
            code=DESTINATION_GONE,
            sealed_address=claimed.message.sealed_address,
        )
