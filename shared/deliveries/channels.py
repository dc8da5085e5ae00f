"""What a kind of delivery knows of its destinations, asked at every attempt.

So a moved destination, a rotated secret and a removed endpoint count from the next attempt on, and the outbox holds
no copy of a secret. A kind without a channel keeps its encrypted address beside its message.
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
    """By the database's clock: a worker whose own is off would be refused by every receiver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a message is posted, and with which headers besides its type."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)
    """What is posted in place of the message's own body, where it holds a secret that no row may hold."""


class Channel(Protocol):
    """One kind of delivery."""

    def find_address(self, session: Session, message: Message) -> Address | None:
        """Find where and how this message is posted now; None when its destination is gone."""

    def disable(self, session: Session, destination_id: UUID, address: Address) -> bool:
        """Disable a destination that answered 410; False when its address has changed since."""
