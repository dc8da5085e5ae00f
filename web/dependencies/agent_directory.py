"""A cache of agents. Every A2A request needs an agent, which is at most `LIVE_ROW_CACHE_SECONDS` old."""

from dataclasses import dataclass
from uuid import UUID

from shared.a2a.agents.directory import Agent, get_agent, get_default_agent_id
from shared.a2a.agents.extensions import declared_by
from shared.a2a.agents.own_extensions import OwnExtensions
from shared.a2a.updates import DeclaredExtension
from shared.config.settings import Settings
from shared.db.database import Database
from shared.identity.authentication.revocation_watcher import CHECK_SECONDS
from shared.identity.expiring_cache import ExpiringCache

AGENTS_LIMIT = 1024
KEPT_SECONDS = 5.0 - CHECK_SECONDS
"""The longest lifetime of a cached agent, in seconds.

The calls of a disabled agent must end within five seconds, which include CHECK_SECONDS.
"""
# The cache key of the default agent. No deployment has this id.
_DEFAULT = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAgent:
    """An agent, with the extensions that the agent declares."""

    agent: Agent
    declared: tuple[DeclaredExtension, ...]


class AgentDirectory:
    """Finds agents by deployment id, and caches them in this process."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        # The setting may shorten the lifetime, which never exceeds KEPT_SECONDS, so that revocation takes effect
        # in time.
        self._kept_seconds = min(settings.live_row_cache_seconds, KEPT_SECONDS)
        self.own = OwnExtensions(settings.base_url)
        self._known = ExpiringCache[KnownAgent](AGENTS_LIMIT)

    def get(self, deployment_id: UUID | None) -> KnownAgent:
        """Return the agent of a deployment, or the default agent at the root. Raises AgentNotFound."""
        key = (deployment_id or _DEFAULT).bytes
        known = self._known.find(key)
        if known is None:
            known = self._read(deployment_id)
            self._known.put(key, known, ttl_seconds=self._kept_seconds)
        return known

    def _read(self, deployment_id: UUID | None) -> KnownAgent:
        with self._database.autocommit() as session:
            if deployment_id is None:
                deployment_id = get_default_agent_id(session, self._settings.default_agent)
            agent = get_agent(session, deployment_id)
        # Derive the extensions once for each cache entry, because every request compares its extensions with
        # them.
        return KnownAgent(agent=agent, declared=declared_by(agent, self.own))
