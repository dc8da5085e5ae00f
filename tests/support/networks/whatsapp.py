"""A stand-in for WhatsApp: batches of messages, media ids, and media URLs that need the token and a User-Agent."""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from tests.support.networks.serving import Asked, Reply, Sent, StandIn, give, say

APP_SECRET = "0123456789abcdef0123456789abcdef"
VERIFY_TOKEN = "meatyhamhock-meatyhamhock"
ACCESS_TOKEN = "EAAJB" + "x" * 150


class WhatsAppStandIn(StandIn):
    """The stand-in for WhatsApp."""

    name = "whatsapp"

    @property
    def settings(self) -> Mapping[str, str]:
        given = {"appSecret": APP_SECRET, "verifyToken": VERIFY_TOKEN, "accessToken": ACCESS_TOKEN}
        return given | ({"apiBaseUrl": f"{self.url}/v24.0"} if self.url else {})

    def new_id(self, number: int) -> str:
        return f"{1000000000000000 + number}"

    def message(self, *files: str, message: str = "1") -> bytes:
        """Return the body of a webhook; WhatsApp sends a separate message for each file, several in one webhook."""
        messages = [
            self.media_message(file_id, f"wamid.{message}.{number}") for number, file_id in enumerate(files)
        ]
        return json.dumps(self.webhook(*messages)).encode()

    def webhook(self, *messages: dict[str, Any]) -> dict[str, Any]:
        """Return a webhook with each message in an entry and a change of its own."""
        return {
            "object": "whatsapp_business_account",
            "entry": [
                {
                    "id": "102290129340398",
                    "changes": [{"field": "messages", "value": self.value(message)}],
                }
                for message in messages
            ],
        }

    def value(self, *messages: dict[str, Any]) -> dict[str, Any]:
        return {
            "messaging_product": "whatsapp",
            "metadata": {"display_phone_number": "15550783881", "phone_number_id": "106540352242922"},
            "contacts": [{"profile": {"name": "Sheena Nelson"}, "wa_id": "16505551234"}],
            "messages": list(messages),
        }

    def media_message(self, file_id: str, message_id: str) -> dict[str, Any]:
        sample = self.kept[file_id]
        family = sample.media_type.partition("/")[0]
        kind = family if family in ("image", "audio", "video") else "document"
        digest = base64.b64encode(hashlib.sha256(sample.content).digest()).decode()
        media = {"mime_type": sample.media_type, "sha256": digest, "id": file_id}
        return {
            "from": "16505551234",
            "id": message_id,
            "timestamp": "1730000000",
            "type": kind,
            kind: media | ({"filename": sample.file_name} if kind == "document" else {}),
        }

    def says(self, text: str, number: str) -> bytes:
        value = {
            "contacts": [{"wa_id": "49", "profile": {"name": "Ada"}}],
            "messages": [{"id": number, "from": "49", "type": "text", "text": {"body": text}}],
        }
        return json.dumps({"entry": [{"changes": [{"field": "messages", "value": value}]}]}).encode()

    def signature(self, sent: Sent) -> dict[str, str]:
        digest = hmac.new(APP_SECRET.encode(), sent.body, hashlib.sha256).hexdigest()
        return {"X-Hub-Signature-256": f"sha256={digest}"}

    def reply(self, asked: Asked) -> Reply:
        if asked.headers.get("authorization") != f"Bearer {ACCESS_TOKEN}":
            error = {"message": "Invalid OAuth access token", "type": "OAuthException", "code": 190}
            return say({"error": error}, 401)
        file_id = asked.query.get("mid") or asked.path.rpartition("/")[2]
        sample = self.kept.get(file_id)
        if asked.path.startswith("/whatsapp_business/"):
            if sample is None or not asked.headers.get("user-agent"):
                return Reply(status=404)
            return give(sample)
        if sample is None:
            error = {"message": "Unsupported get request.", "code": 100, "error_subcode": 33}
            return say({"error": error}, 400)
        return say(
            {
                "messaging_product": "whatsapp",
                "url": f"{self.url}/whatsapp_business/attachments/?mid={file_id}&ext=1730000300&hash=x",
                "mime_type": sample.media_type,
                "sha256": hashlib.sha256(sample.content).hexdigest(),
                "file_size": str(len(sample.content)),
                "id": file_id,
            }
        )
