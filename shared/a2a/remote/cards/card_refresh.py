"""Refresh the cards of endpoints: read the card of a new endpoint at once, and each card again after a while.

For an unchanged card the agent returns one response without a body (ETag). If a card cannot be read, the stored card
stays. If the endpoint is replaced during the read, the result is dropped. Cards are selected round robin among
organizations. Servers that do not respond occupy only a few threads for some seconds.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import case, func, select, text, update

from shared.a2a.agents.card_documents import CardUnusable, Finding, declared_extensions
from shared.a2a.behaviors.remote_behaviors import describe_remote_behavior
from shared.a2a.endpoint_tables import deployment_endpoints
from shared.a2a.exact_json import render
from shared.a2a.remote.cards.card_reader import CardReader, FoundCard
from shared.a2a.remote.endpoints import Endpoint, ReadCards, find_endpoint
from shared.db.database import Database, Session
from shared.egress.policy import EgressPolicy
from shared.encryption import Encryption
from shared.fairness.fair_queueing import first_of_each, select_round_robin
from shared.messaging.jobs import Context, handles
from shared.observability.telemetry import SWEPT
from shared.runtime.batches import drain

FRESH_FOR = timedelta(minutes=5)
"""How long a card is used before it is read again."""
RETRY_AFTER = timedelta(minutes=1)
FIRST_RETRY_AFTER = timedelta(seconds=10)
"""A card that was never read is retried soon, then less and less often, because messages wait for it."""
_table = deployment_endpoints.c
_REGISTERED = ("url", "card_url", "interface_override", "credential_encrypted")


def record_card(
    session: Session,
    endpoint: Endpoint,
    found: FoundCard,
    *,
    problem: Finding | None = None,
    has_list_tasks: bool | None = None,
) -> None:
    """Store a card, and set the extensions of the deployment's remote behavior to the extensions of the card."""
    held = select(_table.card).where(*_is_still(endpoint)).with_for_update()
    row = session.execute(held).one_or_none()
    if row is None:
        return
    interface, card = found.interface, found.remote.card
    values: dict[str, Any] = {
        "card": found.remote.document,
        "etag": found.etag,
        "binding": interface.binding,
        "interface_url": interface.url,
        "tenant": interface.tenant,
        "streams": bool(card.capabilities.streaming),
    }
    if has_list_tasks is not None:
        values["has_list_tasks"] = has_list_tasks
    _record(session, endpoint, problem, **values)
    # Compare the cards as text: an unchanged card must not change the behavior's `updated_at`, from which our own
    # card's ETag is made.
    if row.card is None or render(row.card) != render(found.remote.document):
        describe_remote_behavior(
            session,
            endpoint.deployment_id,
            description=card.description,
            extensions=declared_extensions(card),
        )


def record_problem(session: Session, endpoint: Endpoint, problem: Finding) -> None:
    """Store the problem of an endpoint. The stored card and interface stay."""
    _record(session, endpoint, problem)


def record_unchanged(session: Session, endpoint: Endpoint) -> None:
    """Store that the card has not changed."""
    _record(session, endpoint, None)


def _record(session: Session, endpoint: Endpoint, problem: Finding | None, **values: Any) -> None:
    age = func.now() - _table.updated_at
    # The pause grows with the age of the endpoint, from ten seconds to five minutes.
    unread = func.least(func.greatest(age, FIRST_RETRY_AFTER), FRESH_FOR)
    again = FRESH_FOR if problem is None else case((_table.card.is_(None), unread), else_=RETRY_AFTER)
    session.execute(
        update(deployment_endpoints)
        .where(*_is_still(endpoint))
        .values(
            problem=problem.message if problem is not None else None,
            checked_at=func.now(),
            next_check_at=func.now() + again,
            **values,
        )
    )


def _is_still(endpoint: Endpoint) -> list[Any]:
    """Return the conditions that select the endpoint's row if the endpoint was not replaced."""
    same = [_table[name].is_not_distinct_from(getattr(endpoint, name)) for name in _REGISTERED]
    return [_table.deployment_id == endpoint.deployment_id, *same]


BATCH_SIZE = 16
THREADS = 4
"""Cards that one worker process reads at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRefresher:
    """The database and the reader for refreshing cards."""

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
    """Read the cards that are due; return their number."""

    def batch() -> int:
        with refresher.database.autocommit() as session:
            due = select_round_robin(session, oldest=_OLDEST, fair=_FAIR, limit=BATCH_SIZE)
        # Read the cards in parallel, because one slow server may take the whole time limit.
        with ThreadPoolExecutor(THREADS, thread_name_prefix="cards") as pool:
            return sum(pool.map(partial(_refresh_if_due, refresher), due))

    read = drain(batch, size=BATCH_SIZE)
    SWEPT.labels("cards").inc(read)
    return read


def _refresh_if_due(refresher: CardRefresher, deployment_id: UUID) -> bool:
    """Read one card. Return False if it is no longer due, or another process reads it."""
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
# If the reading process dies, the card is due again after a minute.
_CLAIM = text(
    "UPDATE deployment_endpoints SET next_check_at = now() + interval '1 minute'"
    " WHERE deployment_id = :id AND next_check_at <= now()"
    " RETURNING CASE WHEN card IS NOT NULL THEN etag END AS etag"
)
