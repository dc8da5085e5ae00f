"""What the A2A routes are made of: the agents, who waits for which task, and where updates are posted."""

import threading
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from shared.a2a.behaviors.file_links import FileLinks
from shared.a2a.errors import TooManyStreams
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

HINT_TIMEOUT_SECONDS = 0.25
RETRY_SECONDS = 5


class StreamSlots:
    """Room for the streams and waits of one process: shared among tenants, and limited for each credential."""

    def __init__(self, pool: Pool, *, each: int) -> None:
        """Let each credential have so many of the pool's slots, whatever its organization's share is."""
        self._pool = pool
        self._each = each
        self._held: Counter[Hashable] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, key: PoolKey) -> Iterator[None]:
        """Hold a slot within the block. Raises TooManyStreams, ConcurrencyLimited, PoolExhausted."""
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
                if not self._held[credential_id]:
                    del self._held[credential_id]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentServices:
    """Everything an A2A route may use."""

    directory: AgentDirectory
    watch: TaskWatch
    hints: TaskNotifier
    pushes: PushConfigurations
    router: Router
    links: FileLinks
    slots: StreamSlots
    script_errors: ScriptErrors


def build_agent_services(settings: Settings, database: Database, streams: Pool) -> AgentServices:
    """Connect the parts; nothing is opened until it is used."""
    pushes = PushConfigurations(
        encryption=Encryption(settings),
        policy=EgressPolicy.of(settings),
        is_supported=settings.a2a_push_notifications,
    )
    directory = AgentDirectory(database, settings)
    return AgentServices(
        directory=directory,
        watch=TaskWatch(database, connect_valkey(settings.redis_url)),
        hints=TaskNotifier(connect_valkey(settings.redis_url, timeout_seconds=HINT_TIMEOUT_SECONDS)),
        pushes=pushes,
        router=Router(own_extensions=directory.own, pushes=pushes),
        links=FileLinks(database, settings),
        slots=StreamSlots(streams, each=settings.streams_per_caller),
        script_errors=ScriptErrors(settings.a2a_script),
    )
