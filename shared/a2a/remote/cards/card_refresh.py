"""Keep the cards of endpoints fresh: read each again after a while, a new endpoint's at once.

A card that has not changed costs the agent one answer without a body (ETag). One that cannot be read stays as it was.
When more is due than a batch, organizations take turns; servers that do not answer hold a few threads for some
seconds.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from sqlalchemy import text

from shared.a2a.remote.cards.agent_cards import CardReader
from shared.a2a.remote.cards.card_documents import CardUnusable
from shared.a2a.remote.cards.card_records import record_card, record_problem, record_unchanged
from shared.a2a.remote.endpoints import ReadCards, find_endpoint
from shared.db.database import Database
from shared.egress.policy import EgressPolicy
from shared.encryption import Encryption
from shared.fairness.fair_queueing import first_of_each, select_round_robin
from shared.messaging.jobs import Context, handles
from shared.observability.telemetry import SWEPT
from shared.runtime.batches import drain

BATCH_SIZE = 16
THREADS = 4
"""Cards that one worker process reads at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRefresher:
    """What cards are read with."""

    database: Database
    reader: CardReader


@handles(ReadCards, every_seconds=10)
def _read_cards(context: Context) -> int:
    return refresh_due_cards(context.once(_make_refresher))


def _make_refresher(context: Context) -> CardRefresher:
    settings = context.settings
    reader = CardReader(EgressPolicy.of(settings), Encryption(settings))
    return CardRefresher(database=context.database, reader=reader)


def refresh_due_cards(refresher: CardRefresher) -> int:
    """Read the cards that are due; give how many."""

    def batch() -> int:
        with refresher.database.autocommit() as session:
            due = select_round_robin(session, oldest=_OLDEST, fair=_FAIR, limit=BATCH_SIZE)
        with ThreadPoolExecutor(THREADS, thread_name_prefix="cards") as pool:
            return sum(pool.map(partial(_refresh_if_due, refresher), due))

    read = drain(batch, size=BATCH_SIZE)
    SWEPT.labels("cards").inc(read)
    return read


def _refresh_if_due(refresher: CardRefresher, deployment_id: UUID) -> bool:
    """Read one card; False when it is not due any more, or another process reads it."""
    with refresher.database.transaction() as session:
        claimed = session.execute(_CLAIM, {"id": deployment_id}).one_or_none()
        endpoint = find_endpoint(session, deployment_id) if claimed else None
    if claimed is None or endpoint is None:
        return False
    try:
        found = refresher.reader.read(endpoint, etag=claimed.etag)
    except CardUnusable as unusable:
        with refresher.database.transaction() as session:
            record_problem(session, endpoint, unusable.finding)
        return True
    with refresher.database.transaction() as session:
        if found is None:
            record_unchanged(session, endpoint)
        else:
            record_card(session, endpoint, found)
    return True


_OLDEST = text(
    "SELECT deployment_id FROM deployment_endpoints WHERE next_check_at <= now()"
    " ORDER BY next_check_at LIMIT :limit"
)
_HEADS = first_of_each(
    table="deployment_endpoints",
    tenant="organization_id",
    ready="true",
    order="next_check_at",
    key="deployment_id",
)
FAIR = f"SELECT due.id FROM ({_HEADS}) due ORDER BY due.place, random() LIMIT :limit"  # noqa: S608 (names of columns)
_FAIR = text(FAIR)
# A reader that dies gives the card back in a minute.
_CLAIM = text(
    "UPDATE deployment_endpoints SET next_check_at = now() + interval '1 minute'"
    " WHERE deployment_id = :id AND next_check_at <= now()"
    " RETURNING CASE WHEN card IS NOT NULL THEN etag END AS etag"
)
