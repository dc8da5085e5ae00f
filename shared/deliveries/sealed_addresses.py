"""The channel of messages that store their own address. The URL and headers may be secret, so they are encrypted."""

import json
from collections.abc import Mapping
from uuid import UUID

from shared.db.database import Session
from shared.deliveries.channels import Address, Message
from shared.deliveries.signatures import webhook_headers
from shared.encryption import Encryption


def seal_address(
    encryption: Encryption, *, url: str, headers: Mapping[str, str], secret: str | None = None
) -> bytes:
    """Return the encrypted URL, headers and signing secret (`whsec_…`) of a message."""
    return encryption.encrypt(json.dumps({"url": url, "headers": dict(headers), "secret": secret}))


class SealedAddresses:
    """The channel of messages with a sealed address."""

    def __init__(self, encryption: Encryption) -> None:
        self._encryption = encryption

    def find_address(self, session: Session, message: Message) -> Address | None:  # noqa: ARG002 (no row to ask)
        """Return the decrypted address; if it contains a signing secret, add the signature's headers."""
        if message.sealed_address is None:
            return None
        opened = json.loads(self._encryption.decrypt(message.sealed_address))
        secret = opened.get("secret")
        signed = webhook_headers(message, [secret] if secret else [])
        return Address(url=opened["url"], headers={**opened["headers"], **signed})

    def disable(self, session: Session, destination_id: UUID, address: Address) -> bool:  # noqa: ARG002
        """Return True and change nothing: the sender gives up all messages with this address instead."""
        return True
