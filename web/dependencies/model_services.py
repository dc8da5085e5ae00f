"""What the model routes are made of: the catalog, recent usage, and the way to the workers."""

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
    """Tokens and invocations by model, read again at most every half minute."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._usage: Mapping[str, tuple[int, int]] = {}
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    def current(self) -> Mapping[str, tuple[int, int]]:
        """Give the usage; that of before while another thread reads, or the database does not answer."""
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
    """Everything a model route may use."""

    catalog: CatalogFile
    usage: RecentModelUsage
    invoker: Invoker


def build_model_services(settings: Settings, database: Database) -> ModelServices:
    """Connect the parts; nothing is opened until it is used. Raises CatalogInvalid for a wrong MODELS_CONFIG."""
    valkey = connect_valkey(settings.models_redis_url or settings.redis_url)
    limits = Limits(
        queued_calls=settings.queued_model_calls,
        reserved_completion_tokens=settings.reserved_completion_tokens,
    )
    shares = Shares(database, valkey, slots_when_unknown=settings.queued_model_calls)
    queue = open_call_queue(settings, valkey)
    cancellations = Cancellations(queue)
    atexit.register(cancellations.close)  # a front that stops has just cancelled what was under way
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
