"""Notification endpoints of destinations, and the channel that posts signed messages to them.

Each kind of destination has a separate table. Besides the destination's id, each table has the columns `url_encrypted`,
`disabled_at` and `created_at`. The URL may contain a secret, so it is encrypted. An endpoint that responded 410 is
disabled until it is set again.
Messages are signed as Standard Webhooks (version 1.0.0) with every secret that is valid at the attempt.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Column, Row, Table, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert

from shared.config.settings import Settings
from shared.db.database import Session
from shared.deliveries import outbox
from shared.deliveries.channels import Address, Message
from shared.deliveries.signatures import webhook_headers
from shared.egress.policy import EgressPolicy
from shared.egress.urls import parse_url
from shared.encryption import Encryption

REMOVED = "endpoint_removed"
Complete = Callable[[Session, bytes], bytes]
"""Returns a body with secrets added that no row may store, such as links to files."""
ListSecrets = Callable[[Session, Encryption, UUID], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The notification endpoint of a destination. `disabled_at` is the time when the endpoint responded 410."""

    url: str = field(repr=False)
    disabled_at: datetime | None
    created_at: datetime


class Endpoints:
    """Reads and changes the endpoints of one kind of destination."""

    def __init__(self, table: Table, key: Column[UUID]) -> None:
        self._table, self._key = table, key

    def put(
        self, session: Session, settings: Settings, destination_id: UUID, url: str, **values: object
    ) -> None:
        """Set or replace an endpoint. Waiting notifications are sent to the new URL from the next attempt on.

        Raises SchemeRefused, UrlRefused and AddressRefused for a URL that could never be posted to.
        """
        # Refuse an invalid URL when the endpoint is set: the owner would not see a failed notification.
        parse_url(url, EgressPolicy.of(settings), with_secrets=True)
        # Setting an endpoint also enables it.
        changes = {**values, "url_encrypted": Encryption(settings).encrypt(url), "disabled_at": None}
        statement = insert(self._table).values({self._key.name: destination_id, **changes})
        session.execute(statement.on_conflict_do_update(index_elements=[self._key], set_=changes))

    def find(self, session: Session, settings: Settings, destination_id: UUID) -> Endpoint | None:
        """Return the endpoint of a destination, even if the endpoint is disabled; None if there is none."""
        row = session.execute(select(self._table).where(self._key == destination_id)).one_or_none()
        if row is None:
            return None
        url = Encryption(settings).decrypt(bytes(row.url_encrypted))
        return Endpoint(url=url, disabled_at=row.disabled_at, created_at=row.created_at)

    def remove(self, session: Session, destination_id: UUID) -> bool:
        """Delete an endpoint, and mark its waiting messages as dead. Return False if there was no endpoint."""
        removed = session.execute(delete(self._table).where(self._key == destination_id))
        if removed.rowcount:
            outbox.give_up(session, destination_id=destination_id, code=REMOVED)
        return bool(removed.rowcount)

    def lock(self, session: Session, destination_id: UUID) -> Row[Any] | None:
        """Lock an endpoint's row and return it; None if there is none."""
        held = select(self._table.c.url_encrypted).where(self._key == destination_id).with_for_update()
        return session.execute(held).one_or_none()

    def disable(self, session: Session, destination_id: UUID) -> None:
        """Disable an endpoint until it is set again."""
        is_this = self._key == destination_id, self._table.c.disabled_at.is_(None)
        session.execute(update(self._table).where(*is_this).values(disabled_at=func.now()))

    def find_enabled(self, session: Session, destination_id: UUID) -> bytes | None:
        """Return the encrypted URL of an endpoint that is not disabled; None otherwise."""
        is_this = self._key == destination_id, self._table.c.disabled_at.is_(None)
        found = session.execute(select(self._table.c.url_encrypted).where(*is_this)).scalar_one_or_none()
        return None if found is None else bytes(found)


class EndpointChannel:
    """The channel to the endpoints of one kind of destination."""

    def __init__(
        self,
        encryption: Encryption,
        endpoints: Endpoints,
        list_secrets: ListSecrets,
        complete: Complete = lambda _, body: body,
    ) -> None:
        self._encryption = encryption
        self._endpoints = endpoints
        self._list_secrets = list_secrets
        self._complete = complete

    def find_address(self, session: Session, message: Message) -> Address | None:
        """Return the endpoint's URL and the signature's three headers; None if the endpoint is missing or disabled."""
        endpoint = self._endpoints.find_enabled(session, message.destination_id)
        secrets = self._list_secrets(session, self._encryption, message.destination_id)
        if endpoint is None or not secrets:
            return None
        body = self._complete(session, message.body)
        headers = webhook_headers(replace(message, body=body), secrets)
        return Address(url=self._encryption.decrypt(endpoint), headers=headers, body=body)

    def disable(self, session: Session, destination_id: UUID, address: Address) -> bool:
        """Disable the endpoint until it is set again. Return False if it was replaced or removed meanwhile."""
        # Lock the row, so that a URL that is set at the same time is not disabled.
        row = self._endpoints.lock(session, destination_id)
        if row is None or self._encryption.decrypt(bytes(row.url_encrypted)) != address.url:
            return False
        self._endpoints.disable(session, destination_id)
        return True
