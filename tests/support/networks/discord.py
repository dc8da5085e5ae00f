"""A stand-in for Discord: signed interactions, links that expire, and the bot's request to renew them."""

import json
import time
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.support.networks.serving import Asked, Reply, Sent, StandIn, give, say

BOT_TOKEN = "not-a-token-" * 4


class DiscordStandIn(StandIn):
    """The stand-in for Discord."""

    name = "discord"

    def __init__(self) -> None:
        super().__init__()
        self.key = Ed25519PrivateKey.generate()

    @property
    def settings(self) -> Mapping[str, str]:
        given = {"publicKey": self.key.public_key().public_bytes_raw().hex(), "botToken": BOT_TOKEN}
        return given | ({"apiBaseUrl": f"{self.url}/api/v10"} if self.url else {})

    def new_id(self, number: int) -> str:
        return f"{900000000000000000 + number}"

    def message(self, *files: str, message: str = "1") -> bytes:
        return json.dumps(self.interaction(*files, message=message)).encode()

    def interaction(self, *files: str, message: str = "1") -> dict[str, Any]:
        """Return a command with attached files."""
        options = [{"name": f"file{n}", "type": 11, "value": file_id} for n, file_id in enumerate(files)]
        return {
            "id": f"{846462639134605300 + int(message)}",
            "application_id": "845027738276462632",
            "type": 2,
            "token": "A_UNIQUE_TOKEN",
            "channel_id": "645027906669510667",
            "guild_id": "290926798626357999",
            "version": 1,
            "data": {
                "id": "771825006014889984",
                "name": "import",
                "type": 1,
                "options": options,
                "resolved": {"attachments": {file_id: self.attachment(file_id) for file_id in files}},
            },
        }

    def attachment(self, file_id: str, *, expires_at: float | None = None) -> dict[str, Any]:
        sample = self.kept[file_id]
        return {
            "id": file_id,
            "filename": sample.file_name,
            "size": len(sample.content),
            "url": self.link(file_id, expires_at=expires_at),
            "proxy_url": "https://media.discordapp.net/ephemeral-attachments/1/2/x",
            "content_type": sample.media_type,
            "ephemeral": True,
        }

    def link(self, file_id: str, *, expires_at: float | None = None) -> str:
        expiry = int(time.time() + 86400 if expires_at is None else expires_at)
        name = self.kept[file_id].file_name
        host = self.url or "https://cdn.discordapp.com"
        return f"{host}/ephemeral-attachments/1/{file_id}/{name}?ex={expiry:x}&is={expiry - 86400:x}&hm=abc&"

    def says(self, text: str, number: str) -> bytes:
        command = {
            "type": 2,
            "id": number,
            "channel_id": "9",
            "member": {"user": {"id": "1", "username": "ada"}},
            "data": {"name": "ask", "options": [{"name": "text", "type": 3, "value": text}]},
        }
        return json.dumps(command).encode()

    def signature(self, sent: Sent) -> dict[str, str]:
        signature = self.key.sign(b"%d%b" % (sent.at, sent.body)).hex()
        return {"X-Signature-Ed25519": signature, "X-Signature-Timestamp": str(sent.at)}

    def reply(self, asked: Asked) -> Reply:
        if asked.path == "/api/v10/attachments/refresh-urls":
            if asked.headers.get("authorization") != f"Bot {BOT_TOKEN}" or asked.method != "POST":
                return say({"message": "401: Unauthorized", "code": 0}, 401)
            (url,) = json.loads(asked.body)["attachment_urls"]
            return say({"refreshed_urls": [{"original": url, "refreshed": self.link(url.split("/")[5])}]})
        sample = self.kept.get(asked.path.split("/")[3])
        is_good = int(asked.query.get("ex", "0"), 16) > time.time() and asked.query.get("hm") == "abc"
        if sample is None or not is_good:
            gone = b"This content is no longer available."
            return Reply(body=gone, status=404, media_type="text/plain")
        return give(sample)
