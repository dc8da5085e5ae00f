"""A stand-in for Telegram: updates with a secret header, `getFile`, and file URLs that contain the token."""

import json
from collections.abc import Mapping
from typing import Any

from tests.support.networks.serving import Asked, Reply, Sent, StandIn, give, say

SECRET_TOKEN = "a-secret_that-only-Telegram-repeats"
BOT_TOKEN = "123456789:" + "not-a-token-" * 3
LARGEST_BYTES = 20 << 20


class TelegramStandIn(StandIn):
    """The stand-in for Telegram."""

    name = "telegram"
    sends_files_singly = True

    @property
    def settings(self) -> Mapping[str, str]:
        given = {"secretToken": SECRET_TOKEN, "botToken": BOT_TOKEN}
        return given | ({"apiBaseUrl": self.url} if self.url else {})

    def new_id(self, number: int) -> str:
        return f"AgACAgIAAxkBAAI{number:010d}"

    def message(self, *files: str, message: str = "1") -> bytes:
        """Return the body of an update; Telegram sends a separate message for each file."""
        (file_id,) = files
        update = {"update_id": 10000 + int(message), "message": self.post(file_id, message=message)}
        return json.dumps(update).encode()

    def post(self, file_id: str, *, message: str = "1") -> dict[str, Any]:
        """Return a message of the kind that matches its file."""
        kind, sample = self.kind(file_id), self.kept[file_id]
        file: Any = {
            "file_id": file_id,
            "file_unique_id": file_id[-12:],
            "file_size": len(sample.content),
        }
        if kind == "photo":
            file = [
                {**file, "file_id": "small", "width": 90, "height": 51},
                {**file, "width": 800, "height": 600},
            ]
        else:
            file |= {"file_name": sample.file_name, "mime_type": sample.media_type}
        return {
            "message_id": int(message),
            "from": {"id": 1111111, "is_bot": False, "first_name": "Test"},
            "chat": {"id": -1001111111, "type": "supergroup", "title": "Test"},
            "date": 1730000000,
            kind: file,
        }

    def kind(self, file_id: str) -> str:
        kinds = {"image/jpeg": "photo", "audio/ogg": "voice", "video/mp4": "video"}
        return kinds.get(self.kept[file_id].media_type, "document")

    def says(self, text: str, number: str) -> bytes:
        ada = {"id": 1, "is_bot": False, "first_name": "Ada", "last_name": "L"}
        message = {"message_id": int(number), "chat": {"id": 7}, "from": ada, "text": text}
        return json.dumps({"message": message}).encode()

    def signature(self, sent: Sent) -> dict[str, str]:  # noqa: ARG002 (Telegram signs nothing)
        return {"X-Telegram-Bot-Api-Secret-Token": SECRET_TOKEN}

    def reply(self, asked: Asked) -> Reply:
        prefix = f"/file/bot{BOT_TOKEN}/photos/"
        if asked.path.startswith(prefix):
            sample = self.kept.get(asked.path.removeprefix(prefix))
            return give(sample) if sample else say({"ok": False, "error_code": 404}, 404)
        if asked.path != f"/bot{BOT_TOKEN}/getFile":
            return say({"ok": False, "error_code": 401, "description": "Unauthorized"}, 401)
        file_id = asked.query.get("file_id", "")
        if file_id not in self.kept:
            return say({"ok": False, "error_code": 400, "description": "Bad Request: invalid file_id"}, 400)
        size = len(self.kept[file_id].content)
        if size > LARGEST_BYTES:
            return say({"ok": False, "error_code": 400, "description": "Bad Request: file is too big"}, 400)
        file = {"file_id": file_id, "file_unique_id": file_id[-12:], "file_size": size}
        return say({"ok": True, "result": {**file, "file_path": f"photos/{file_id}"}})
