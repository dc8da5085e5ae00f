"""The servers outside the service: a source of attachments, and a distribution's notification endpoint.

Both misbehave as real ones do. The endpoint verifies what it accepts and records it by its `webhook-id`.
"""

import base64
import hashlib
import hmac
import json
import random
import time
from collections.abc import Mapping
from typing import Any

from tests.chaos.unreliable_endpoint import UnreliableEndpoint
from tests.support.data.media_sources import Handler, Respond, begin

SLOW_PIECES = 8
SLOW_PAUSE_SECONDS = 0.15


def slowly(body: bytes, media_type: str) -> Respond:
    """Send a body slowly, in chunks."""

    def respond(handler: Handler) -> None:
        begin(handler, 200, {"Content-Type": media_type, "Content-Length": str(len(body))})
        step = len(body) // SLOW_PIECES + 1
        for start in range(0, len(body), step):
            handler.wfile.write(body[start : start + step])
            handler.wfile.flush()
            time.sleep(SLOW_PAUSE_SECONDS)

    return respond


def signature(secret: str, webhook_id: str, timestamp: str, body: bytes) -> str:
    """Return the signature that Standard Webhooks defines."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


class Endpoint(UnreliableEndpoint):
    """The notification endpoint of a distribution."""

    def __init__(self, secret: str, chance: random.Random) -> None:
        super().__init__(chance)
        self._secret = secret
        self._accepted: dict[str, bytes] = {}
        self.faults: list[str] = []

    def events(self) -> list[dict[str, Any]]:
        """Return every accepted message, one for each id."""
        with self._lock:
            return [json.loads(body) for body in self._accepted.values()]

    def take(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """Verify a message, and record it by its id."""
        del path
        webhook_id, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
        expected = signature(self._secret, webhook_id, timestamp, body)
        if not hmac.compare_digest(headers["webhook-signature"], expected):
            self.faults.append(f"notification {webhook_id} is not signed with our secret")
        if self._accepted.setdefault(webhook_id, body) != body:
            self.faults.append(f"notification {webhook_id} came again and said something else")
