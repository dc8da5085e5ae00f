"""The interface through which the outbox gets the address of a message, at every attempt.

Each kind of delivery may have a channel. The channel returns the present address, so a moved destination, a rotated
secret or a removed endpoint takes effect with the next attempt, and the outbox holds no copy of a secret. If a kind has
no channel, each of its messages stores its own encrypted address.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from shared.db.database import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message that is about to be posted."""

    id: UUID
    destination_id: UUID
    content_type: str
    body: bytes = field(repr=False)
    sealed_address: bytes | None = field(repr=False)
    sequence: int | None
    attempted_at: datetime
    """The time of the attempt by the database's clock, because a worker's wrong clock would invalidate signatures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The URL of an attempt, and its headers besides the content type."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)
    """The body to post instead of the message's own, if it contains a secret that no row may hold."""


class Channel(Protocol):
    """Finds and disables the destinations of one kind of delivery."""

    def find_address(self, session: Session, message: Message) -> Address | None:
        """Return the URL and headers with which to post this message now; None if its destination is gone."""

    def disable(self, session: Session, destination_id: UUID, address: Address) -> bool:
        """Disable a destination that responded 410. Return False if its address has changed since."""
