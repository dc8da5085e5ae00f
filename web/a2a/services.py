"""What the A2A routes are made of: the agents, who waits for which task, and where updates are posted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from shared.a2a.behaviors.file_links import FileLinks
from shared.a2a.errors import StreamsExhausted, TooManyStreams
from shared.a2a.push_configurations import PushConfigurations
from shared.a2a.watching import TaskHints, TaskWatch
from shared.database import Database
from shared.egress.policy import EgressPolicy
from shared.identity.encryption import Encryption
from shared.settings import Settings
from shared.valkey import connect_valkey
from web.a2a.directory import AgentDirectory
from web.a2a.scripts import ScriptedRefusals

HINT_TIMEOUT_SECONDS = 0.25
RETRY_SECONDS = 5


class StreamSlots:
    """Counts the requests that wait in this process, each of which holds a thread: in all and for each credential."""

    def __init__(self, *, each: int, in_all: int) -> None:
        """Let each credential have so many, and all of them together so many that threads are left for the rest."""
        self._each = each
        self._free = in_all
        self._held: Counter[UUID] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, credential_id: UUID) -> Iterator[None]:
        """Hold a slot within the block. Raises TooManyStreams, StreamsExhausted."""
        with self._lock:
            if self._held[credential_id] >= self._each:
                raise TooManyStreams(retry_after_seconds=RETRY_SECONDS)
            if self._free <= 0:
                raise StreamsExhausted(retry_after_seconds=RETRY_SECONDS)
            self._held[credential_id] += 1
            self._free -= 1
        try:
            yield
        finally:
            with self._lock:
                self._free += 1
                self._held[credential_id] -= 1
                if not self._held[credential_id]:
                    del self._held[credential_id]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentServices:
    """Everything an A2A route may use."""

    directory: AgentDirectory
    watch: TaskWatch
    hints: TaskHints
    pushes: PushConfigurations
    links: FileLinks
    slots: StreamSlots
    refusals: ScriptedRefusals


def build_agent_services(settings: Settings, database: Database) -> AgentServices:
    """Connect the parts; nothing is opened until it is used."""
    return AgentServices(
        directory=AgentDirectory(database, settings),
        watch=TaskWatch(database, connect_valkey(settings.redis_url)),
        hints=TaskHints(connect_valkey(settings.redis_url, timeout_seconds=HINT_TIMEOUT_SECONDS)),
        pushes=PushConfigurations(
            encryption=Encryption(settings),
            policy=EgressPolicy.of(settings),
            is_supported=settings.a2a_push_notifications,
        ),
        links=FileLinks(database, settings),
        slots=StreamSlots(each=settings.streams_per_caller, in_all=settings.streams_per_process),
        refusals=ScriptedRefusals(settings.a2a_script),
    )
