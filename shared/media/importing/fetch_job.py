"""Run imports: claim → locate → fetch → store. Each attempt has a lease, and each import is stored only once.

If a worker dies, its lease expires and a sweep deletes the staged bytes. An import with a transient failure is retried
after growing waits. A failure of this service counts no attempt. A failure that an administrator can resolve pauses the
import. Any other failure ends the import, and its code is recorded.
"""

import json
import threading
from dataclasses import dataclass, field
from functools import partial

from shared import failpoints
from shared.config.settings import Settings
from shared.db.database import Database, Session
from shared.egress.deadlines import Pace
from shared.egress.fetch import FetchLimits, ask
from shared.egress.policy import EgressPolicy
from shared.encryption import Encryption
from shared.errors import DomainError, Kind
from shared.fairness.admission import Pool, PoolKey, Slot
from shared.fairness.fair_queueing import RoundRobin
from shared.files.blobs.base import BlobStore
from shared.files.stores import StoreContext
from shared.media.attachments import Source
from shared.media.errors import ImportAbandoned, NetworkNotConfigured
from shared.media.importing import claims
from shared.media.importing.authority import authorize_import
from shared.media.importing.claims import LeaseLost
from shared.media.importing.download import Download
from shared.media.importing.import_notifications import notify_import
from shared.media.importing.imports import STANDARD, FetchMedia, Import
from shared.media.importing.leases import RenewedLease, start_lease_renewal
from shared.media.importing.paused_imports import pause, should_pause
from shared.media.importing.storage import store_fetched
from shared.media.network_settings import get_credentials
from shared.media.networks.registry import find_network
from shared.messaging.jobs import handles, sweep
from shared.messaging.queues import MEDIA
from shared.observability.telemetry import IMPORTS, get_logger
from shared.runtime.batches import must_stop
from shared.runtime.periodic_thread import InFlight

log = get_logger(__name__)

IDLE_SECONDS = 20.0
OVERHEAD_SECONDS = 120.0
"""The time of an attempt, besides the fetch, for locating and storing the bytes."""
JOB_BUDGET_SECONDS = 600.0
"""The time after which a job starts no further import, so that its thread becomes free."""
SPARE_THREADS = 2
"""The number of threads that never fetch: one for the sender of deliveries, and one for its wake-up messages."""
_OWN_FAILURES = frozenset({Kind.UNAVAILABLE, Kind.STORAGE_FULL})
"""The kinds of failures of this service: the database or the store is unavailable, or the storage is full."""
_TRANSIENT_KINDS = _OWN_FAILURES | {Kind.LIMITED, Kind.UPSTREAM_TIMED_OUT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetcher:
    """The dependencies and limits of running imports. A process has one fetcher."""

    database: Database
    store: BlobStore
    settings: Settings
    encryption: Encryption
    policy: EgressPolicy
    pool: Pool
    """The pool of threads that fetch. Organizations share the threads; each distribution is a member of the pool."""
    rotation: RoundRobin = field(default_factory=RoundRobin)
    leases: InFlight[RenewedLease] = field(default_factory=start_lease_renewal)
    claiming: threading.Lock = field(default_factory=threading.Lock)
    is_stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the process must stop. Running imports then finish, and no new import starts."""

    @property
    def limits(self) -> FetchLimits:
        """The limits of one fetch."""
        return FetchLimits(
            maximum_bytes=self.settings.max_media_bytes,
            deadline_seconds=self.settings.media_fetch_seconds,
            idle_seconds=IDLE_SECONDS,
            pace=Pace(
                grace_seconds=self.settings.media_grace_seconds,
                minimum_bytes_per_second=self.settings.media_minimum_bytes_per_second,
            ),
        )


@handles(FetchMedia, budget_seconds=JOB_BUDGET_SECONDS, in_parallel=True)
@sweep("media.fetch_due", queue=MEDIA, every_seconds=5, budget_seconds=JOB_BUDGET_SECONDS, in_parallel=True)
def _fetch_due(context: StoreContext) -> int:
    return fetch_due(context.once(_make_fetcher))


def _make_fetcher(context: StoreContext) -> Fetcher:
    """Return a fetcher that uses all threads except SPARE_THREADS, so that slow sources do not block notifications."""
    settings = context.settings
    fetcher = Fetcher(
        database=context.database,
        store=context.store,
        settings=settings,
        encryption=Encryption(settings),
        policy=EgressPolicy.of(settings),
        pool=Pool("fetches", max(1, context.threads - SPARE_THREADS)),
    )
    context.when_stopping(fetcher.is_stopping.set)
    return fetcher


def fetch_due(fetcher: Fetcher) -> int:
    """Run due imports one after the other until none may be claimed. Return the number of imports that ran."""
    done = 0
    while not fetcher.is_stopping.is_set():
        claimed = _claim(fetcher)
        if claimed is None:
            break
        slot, due, headers = claimed
        with slot:
            failpoints.hit("import.claimed")
            _run_import(fetcher, due, headers)
        done += 1
        if must_stop():
            break
    return done


def _claim(fetcher: Fetcher) -> tuple[Slot, Import, bytes | None] | None:
    """Claim the next import of an organization that may use another thread. Return None if there is no such import."""
    # Let one thread claim at a time: otherwise another thread could fill the pool between this check and the claim.
    with fetcher.claiming:
        if fetcher.pool.in_use >= fetcher.pool.slots or not _is_any_due(fetcher):
            return None
        with fetcher.database.transaction() as session:
            claimed = claims.claim_due(
                session,
                fetcher.rotation,
                per_distribution=fetcher.settings.concurrent_imports,
                full_organizations=fetcher.pool.tenants_at_limit(),
            )
        if claimed is None:
            return None
        due, headers = claimed
        return fetcher.pool.acquire(PoolKey(due.organization_id, due.distribution_id)), due, headers


def _is_any_due(fetcher: Fetcher) -> bool:
    with fetcher.database.autocommit() as session:
        return claims.is_any_due(session)


def _run_import(fetcher: Fetcher, claimed: Import, headers: bytes | None) -> None:
    try:
        stored = _attempt(fetcher, claimed, headers)
    except LeaseLost:
        IMPORTS.labels(claimed.network, "lost").inc()
        log.warning("import.lease_lost", import_id=claimed.id)
    except DomainError as error:
        _record_failure(fetcher, claimed, error)
    else:
        IMPORTS.labels(claimed.network, "stored").inc()
        log.info("import.stored", import_id=claimed.id, network=claimed.network, file_id=stored.file_id)


def _attempt(fetcher: Fetcher, claimed: Import, headers: bytes | None) -> Import:
    # Count every claim, even a claim without a result: otherwise an import that kills its workers would never end.
    if claimed.spent_attempts > fetcher.settings.media_attempts:
        raise ImportAbandoned
    with fetcher.database.autocommit() as session:
        # Authorize before the fetch, to avoid a useless one. The transaction that stores the content authorizes again.
        authorize_import(session, claimed.distribution_id)
    longest_seconds = fetcher.limits.deadline_seconds + OVERHEAD_SECONDS
    kept = RenewedLease(fetcher.database, claimed, longest_seconds=longest_seconds)
    with fetcher.leases.track(kept) as lease:
        source = _locate(fetcher, claimed, headers)
        failpoints.hit("import.located")
        download = Download(
            source=source,
            attachment=claimed.attachment,
            policy=fetcher.policy,
            limits=fetcher.limits,
            check_lease=lease.check,
            is_from_network=claimed.network != STANDARD,
        )
        stored = store_fetched(fetcher.database, fetcher.store, fetcher.settings, claimed, download)
    failpoints.hit("import.stored")
    return stored


def _locate(fetcher: Fetcher, claimed: Import, headers: bytes | None) -> Source:
    attachment = claimed.attachment
    if claimed.network == STANDARD:
        sent: dict[str, str] = json.loads(fetcher.encryption.decrypt(headers)) if headers else {}
        return Source(url=attachment.location["url"], headers=sent)
    network = find_network(claimed.network)
    # This release no longer supports the network, so the import cannot be fetched.
    if network is None:
        raise NetworkNotConfigured
    with fetcher.database.autocommit() as session:
        credentials = get_credentials(session, fetcher.encryption, claimed.distribution_id, network.name)
    return network.locate(attachment, credentials, partial(ask, policy=fetcher.policy))


def _record_failure(fetcher: Fetcher, claimed: Import, error: DomainError) -> None:
    """Release the import for a later attempt, pause it or end it. Change nothing if the lease was lost."""
    failpoints.hit("import.failing")
    with fetcher.database.transaction() as session:
        # Check the cause in this order: this service, then an operator's settings, then the source.
        if error.kind in _OWN_FAILURES and claims.postpone(session, claimed, code=error.code):
            outcome = "postponed"
        elif should_pause(claimed, error) and pause(session, fetcher.settings, claimed, code=error.code):
            outcome = "held"
        elif is_transient(error) and claimed.spent_attempts < fetcher.settings.media_attempts:
            outcome = "put_back" if _release_for_retry(session, claimed, error) else "lost"
        else:
            outcome = "failed" if _end(session, fetcher.settings, claimed, error) else "lost"
        failpoints.hit("import.before_failure")
    failpoints.hit("import.failed")
    IMPORTS.labels(claimed.network, outcome).inc()
    log.warning(
        "import.attempt_failed",
        outcome=outcome,
        import_id=claimed.id,
        network=claimed.network,
        code=error.code,
        attempts=claimed.attempts,
    )


def _release_for_retry(session: Session, claimed: Import, error: DomainError) -> bool:
    return claims.release_for_retry(
        session, claimed, code=error.code, retry_after_seconds=error.retry_after_seconds
    )


def _end(session: Session, settings: Settings, claimed: Import, error: DomainError) -> bool:
    failed = claims.mark_failed(session, claimed, code=error.code, kept_days=settings.media_record_days)
    if failed is not None:
        notify_import(session, failed)
    return failed is not None


def is_transient(error: DomainError) -> bool:
    """Return whether an import that failed with this error may succeed at a later attempt."""
    is_transient_error: bool | None = getattr(error, "is_transient", None)
    return error.kind in _TRANSIENT_KINDS if is_transient_error is None else is_transient_error
