"""A worker in a process of its own that runs due fetches; for `tests.support.processes.killable_processes`."""

from shared.config.settings import Settings
from shared.db.database import Database
from shared.egress.policy import EgressPolicy
from shared.encryption import Encryption
from shared.fairness.admission import Pool
from shared.media.importing.fetch_job import Fetcher, fetch_due
from tests.support.servers.stores import open_any_store


def work(settings: Settings) -> None:
    """Run due fetches with these settings."""
    fetch_due(
        Fetcher(
            database=Database(settings.database_url, pool_size=2),
            store=open_any_store(settings),
            settings=settings,
            encryption=Encryption(settings),
            policy=EgressPolicy(allow_private=True, allow_http=True),
            pool=Pool("fetches", 16),
        )
    )
