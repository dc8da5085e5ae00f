"""The services of the model routes: the catalog, recent usage, and the invoker that sends calls to workers."""

import atexit
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from shared.config.settings import Settings
from shared.credits.usage.usage_reports import model_usage
from shared.db.database import Database
from shared.errors import DomainError
from shared.messaging.replies import ReplyChannel
from shared.messaging.valkey import connect_valkey
from shared.models.call_admission import CallAdmission
from shared.models.cancellations import Cancellations
from shared.models.catalog_file import CatalogFile
from shared.models.concurrency_limits import Shares
from shared.models.heartbeats import LeaseReader
from shared.models.invocations import Invoker, Limits
from shared.models.model_slots import ModelSlots
from shared.models.queue.rabbitmq_calls import open_call_queue
from shared.observability.telemetry import get_logger

log = get_logger(__name__)

USAGE_SECONDS = 30.0
SILENT_CALL_THREADS = 4


class RecentModelUsage:
    """Tokens and invocations by model, read from the database at most every 30 seconds."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._usage: Mapping[str, tuple[int, int]] = {}
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    def current(self) -> Mapping[str, tuple[int, int]]:
        """Return recent usage.

        If another thread is reading the usage, or the database fails, return the previous result.
        """
        # No thread waits for the lock: stale usage is better than a slow list of models.
        if time.monotonic() - self._read_at > USAGE_SECONDS and self._lock.acquire(blocking=False):
            try:
                with self._database.autocommit() as session:
                    self._usage = model_usage(session)
                self._read_at = time.monotonic()
            except DomainError as error:
                log.warning("model_usage.not_read", error=error.code)
            finally:
                self._lock.release()
        return self._usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServices:
    """The services that model routes use."""

    catalog: CatalogFile
    usage: RecentModelUsage
    invoker: Invoker


def build_model_services(settings: Settings, database: Database) -> ModelServices:
    """Create the services. A service opens its connections at first use.

    Raises CatalogInvalid if MODELS_CONFIG is invalid.
    """
    # Use the models' own Valkey if it is configured: prompts and replies belong in a Valkey that does not
    # write to disk.
    valkey = connect_valkey(settings.models_redis_url or settings.redis_url)
    limits = Limits(
        queued_calls=settings.queued_model_calls,
        reserved_completion_tokens=settings.reserved_completion_tokens,
    )
    shares = Shares(database, valkey, slots_when_unknown=settings.queued_model_calls)
    queue = open_call_queue(settings, valkey)
    cancellations = Cancellations(queue)
    # A web process that stops has just cancelled its running calls, so send these cancellations before it exits.
    atexit.register(cancellations.close)
    invoker = Invoker(
        database=database,
        queue=queue,
        replies=ReplyChannel(valkey),
        limits=limits,
        leases=LeaseReader(database),
        cancellations=cancellations,
        threads=ThreadPoolExecutor(SILENT_CALL_THREADS, thread_name_prefix="silent-calls"),
        admission=CallAdmission(
            database, shares, ModelSlots(valkey), max_wait_seconds=settings.slot_wait_seconds
        ),
    )
    return ModelServices(
        catalog=CatalogFile(settings.models_config).watch(), usage=RecentModelUsage(database), invoker=invoker
    )
