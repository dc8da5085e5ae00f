"""The services of the A2A routes: the agents, notifications of tasks, push configurations, and slots of streams."""

import threading
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from shared.a2a.errors import TooManyStreams
from shared.a2a.file_links import FileLinks
from shared.a2a.push.configurations import PushConfigurations
from shared.a2a.tasks.router import Router
from shared.a2a.tasks.task_notifier import TaskNotifier, TaskWatch
from shared.config.settings import Settings
from shared.db.database import Database
from shared.egress.policy import EgressPolicy
from shared.encryption import Encryption
from shared.fairness.admission import Pool, PoolKey
from shared.messaging.valkey import connect_valkey
from web.dependencies.agent_directory import AgentDirectory
from web.dependencies.script_errors import ScriptErrors

# The timeout is short, because a lost wake-up message does little harm: readers and workers also poll.
NOTIFY_TIMEOUT_SECONDS = 0.25
RETRY_SECONDS = 5


class StreamSlots:
    """Slots for the streams and waits of one process.

    Tenants share the slots fairly, and the slots of each credential are limited.
    """

    def __init__(self, pool: Pool, *, each: int) -> None:
        """Create the slots of a pool. One credential may hold at most `each`, besides its organization's limit."""
        self._pool = pool
        self._each = each
        self._held: Counter[Hashable] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, key: PoolKey) -> Iterator[None]:
        """Occupy a slot during the block. Raises TooManyStreams, ConcurrencyLimited, PoolExhausted."""
        # Check the limit of the credential first: a client over the limit is refused at once and never waits
        # for a slot.
        with self._one_more(key.member), self._pool.acquire(key):
            yield

    @contextmanager
    def _one_more(self, credential_id: Hashable) -> Iterator[None]:
        with self._lock:
            if self._held[credential_id] >= self._each:
                raise TooManyStreams(retry_after_seconds=RETRY_SECONDS)
            self._held[credential_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._held[credential_id] -= 1
                # Delete a count of zero: credentials come and go, and the counter must not grow with them.
                if not self._held[credential_id]:
                    del self._held[credential_id]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentServices:
    """The services that A2A routes use."""

    directory: AgentDirectory
    watch: TaskWatch
    notifier: TaskNotifier
    pushes: PushConfigurations
    router: Router
    links: FileLinks
    slots: StreamSlots
    script_errors: ScriptErrors


def build_agent_services(settings: Settings, database: Database, streams: Pool) -> AgentServices:
    """Create the services. A service opens its connections at first use, so web processes can fork first."""
    pushes = PushConfigurations(
        encryption=Encryption(settings),
        policy=EgressPolicy.of(settings),
        is_supported=settings.a2a_push_notifications,
    )
    directory = AgentDirectory(database, settings)
    return AgentServices(
        directory=directory,
        watch=TaskWatch(database, connect_valkey(settings.redis_url)),
        notifier=TaskNotifier(connect_valkey(settings.redis_url, timeout_seconds=NOTIFY_TIMEOUT_SECONDS)),
        pushes=pushes,
        router=Router(own_extensions=directory.own, pushes=pushes),
        links=FileLinks(database, settings),
        slots=StreamSlots(streams, each=settings.streams_per_caller),
        script_errors=ScriptErrors(settings.a2a_script),
    )
