"""Messages, senders and what a test needs to see of the outbox."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from uuid import UUID, uuid4

from pydantic import SecretStr
from sqlalchemy import text

from shared.db.database import Database, Session
from shared.deliveries.channels import Channel
from shared.deliveries.claims import Claim, Claimer
from shared.deliveries.outbox import Delivery, enqueue_delivery, get_delivery
from shared.deliveries.sealed_addresses import seal_address
from shared.deliveries.sender import Sender
from shared.encryption import Encryption
from shared.fairness.fair_queueing import RoundRobin
from tests.support.data.identity import make_settings

KIND = "test"
BODY = b'{"hello": "world"}'
ORGANIZATION = uuid4()
_KEY = base64.urlsafe_b64encode(bytes(32)).decode()
"""The same in every process of a test."""
SETTINGS = make_settings(
    egress_allow_private=True,
    egress_allow_http=True,
    concurrent_deliveries=16,
    encryption_keys=(SecretStr(_KEY),),
)


def enqueue(database: Database, url: str, destination: UUID, **options: Any) -> UUID:
    """Write down a message to a sealed address."""
    headers: Mapping[str, str] = options.pop("headers", {})
    organization_id = options.pop("organization_id", ORGANIZATION)
    values = {"kind": KIND, "event": "test.happened", "body": BODY, **options}
    with database.transaction() as session:
        return enqueue_delivery(
            session,
            destination_id=destination,
            organization_id=organization_id,
            sealed_address=_sealed(url, tuple(headers.items())),
            **values,
        )


def enqueue_many(database: Database, url: str, organization_id: UUID, count: int) -> None:
    """Write down a message to each of so many destinations, all at the same address."""
    with database.transaction() as session:
        session.execute(
            text("""
                INSERT INTO deliveries (id, kind, event, destination_id, organization_id, address_encrypted,
                    content_type, body, in_flight_limit, attempt_limit)
                SELECT gen_random_uuid(), :kind, 'x', gen_random_uuid(), :organization, :address, 'text/plain', :body,
                    4, 10
                FROM generate_series(1, :count)"""),
            {
                "kind": KIND,
                "organization": organization_id,
                "address": _sealed(url, ()),
                "body": BODY,
                "count": count,
            },
        )


@cache
def _sealed(url: str, headers: Sequence[tuple[str, str]]) -> bytes:
    """Return an address sealed once, as a receiver supplied it."""
    return seal_address(Encryption(SETTINGS), url=url, headers=dict(headers))


def read(database: Database, destination: UUID, delivery_id: UUID) -> Delivery:
    with database.transaction() as session:
        return get_delivery(session, destination_id=destination, delivery_id=delivery_id)


def row(database: Database, delivery_id: UUID) -> Any:
    """Everything that is kept of a message."""
    with database.transaction() as session:
        return session.execute(text("SELECT * FROM deliveries WHERE id = :id"), {"id": delivery_id}).one()


def let_time_pass(database: Database) -> None:
    """End every wait and every lease."""
    with database.transaction() as session:
        ended = "UPDATE deliveries SET due_at = now() WHERE state IN ('Waiting', 'Sending') AND NOT is_held"
        session.execute(text(ended))


def claim_due(session: Session, *, limit: int, rotation: RoundRobin | None = None) -> Sequence[Claim]:
    """Claim so many messages at most."""
    claimer = Claimer(session, rotation or RoundRobin())
    claims = (claimer.claim() for _ in range(limit))
    return tuple(claim for claim in claims if claim is not None)


@contextmanager
def sender(
    database: Database, channels: Mapping[str, Channel] | None = None, **changes: object
) -> Iterator[Sender]:
    """A sender as a worker has one, with these settings changed."""
    sender = Sender(database, SETTINGS.model_copy(update=changes), channels or {})
    try:
        yield sender
    finally:
        sender.close()
