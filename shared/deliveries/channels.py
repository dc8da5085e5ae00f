"""What a kind of delivery knows of its destinations, asked at every attempt.

So a moved destination, a rotated secret and a removed endpoint count from the next attempt on, and the outbox holds
no copy of a secret. A kind without a channel keeps its encrypted address beside its message.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from shared.database import Session
from shared.encryption import Encryption


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message that is about to be posted."""

    id: UUID
    destination_id: UUID
    content_type: str
    body: bytes = field(repr=False)
    sealed_address: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a message is posted, and with which headers besides its type."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class Channel(Protocol):
    """One kind of delivery."""

    def find_address(self, session: Session, message: Message) -> Address | None:
        """Find where and how this message is posted now; None when its destination is gone."""

    def disable(self, session: Session, destination_id: UUID, address: Address) -> bool:
        """Disable a destination that answered 410; False when its address has changed since."""


class SealedAddresses:
    """The channel of messages that brought their address along."""

    def __init__(self, encryption: Encryption) -> None:
        self._encryption = encryption

    def find_address(self, session: Session, message: Message) -> Address | None:  # noqa: ARG002 (no row to ask)
        """Open the address."""
        if message.sealed_address is None:
            return None
        opened = json.loads(self._encryption.decrypt(message.sealed_address))
        return Address(url=opened["url"], headers=opened["headers"])

    def disable(self, session: Session, destination_id: UUID, address: Address) -> bool:  # noqa: ARG002
        """Do nothing: other messages that bring this address along are given up with this one."""
        return True
