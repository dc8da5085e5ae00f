"""A stand-in for Slack: the Events API, signed by slack_sdk, `files.info`, and a file server.

Without a token, the file server responds with Slack's login page.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from slack_sdk.signature import SignatureVerifier

from tests.support.networks.serving import Asked, Reply, Sent, StandIn, give, say

SIGNING_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
BOT_TOKEN = "xoxb-" + "not-a-token-" * 4
CLIENT_ID, CLIENT_SECRET = "3336676.569200954261", "not-a-client-secret-" * 2
LOGIN_PAGE = Reply(
    body=b"<!DOCTYPE html><html><title>Sign in to Slack</title></html>", media_type="text/html"
)


class SlackStandIn(StandIn):
    """The stand-in for Slack."""

    name = "slack"

    def __init__(self) -> None:
        super().__init__()
        self.tokens = {BOT_TOKEN}
        """Of each workspace that has the app."""
        self.codes: dict[str, dict[str, Any]] = {}
        """What `oauth.v2.access` says to each code, once."""

    @property
    def settings(self) -> Mapping[str, str]:
        given = {"signingSecret": SIGNING_SECRET, "botToken": BOT_TOKEN}
        return given | ({"apiBaseUrl": f"{self.url}/api"} if self.url else {})

    def new_id(self, number: int) -> str:
        return f"F{number:010d}"

    def message(self, *files: str, message: str = "1") -> bytes:
        return json.dumps(self.event(*files, message=message)).encode()

    def event(self, *files: str, message: str = "1") -> dict[str, Any]:
        """Return a message event with files, in the documented form of `file_share`."""
        return {
            "token": "XXYYZZ",
            "team_id": "T123ABC456",
            "api_app_id": "A123ABC456",
            "event": {
                "type": "message",
                "subtype": "file_share",
                "text": "Look",
                "files": [self.file(file_id) for file_id in files],
                "user": "U123ABC456",
                "ts": f"1730000000.{int(message):06d}",
                "channel": "C123ABC456",
                "channel_type": "channel",
                "event_ts": f"1730000000.{int(message):06d}",
            },
            "type": "event_callback",
            "event_id": f"Ev{int(message):09d}",
            "event_time": 1730000000,
        }

    def file(self, file_id: str) -> dict[str, Any]:
        sample = self.kept[file_id]
        path = f"{self.url}/files-pri/T123ABC456-{file_id}"
        return {
            "id": file_id,
            "created": 1730000000,
            "name": sample.file_name,
            "title": "A title",
            "mimetype": sample.media_type,
            "filetype": sample.file_name.rpartition(".")[2],
            "mode": "hosted",
            "is_external": False,
            "size": len(sample.content),
            "file_access": "visible",
            "url_private": f"{path}/{sample.file_name}",
            "url_private_download": f"{path}/download/{sample.file_name}",
        }

    def says(self, text: str, number: str) -> bytes:
        event = {"type": "message", "channel": "C1", "ts": number, "user": "U1", "text": text}
        return json.dumps({"type": "event_callback", "api_app_id": "A1", "event": event}).encode()

    def signature(self, sent: Sent) -> dict[str, str]:
        at = str(sent.at)
        signature = SignatureVerifier(SIGNING_SECRET).generate_signature(timestamp=at, body=sent.body)
        assert signature is not None
        return {"X-Slack-Request-Timestamp": at, "X-Slack-Signature": signature}

    def agree(self, team_id: str) -> str:
        """Approve the app for a workspace, and return the code that Slack sends back."""
        code = f"{team_id}.{len(self.codes)}"
        token = f"xoxb-{team_id}-" + "not-a-token-" * 4
        self.tokens.add(token)
        self.codes[code] = {
            "ok": True,
            "access_token": token,
            "token_type": "bot",
            "scope": "files:read,channels:history",
            "bot_user_id": "U0KRQLJ9H",
            "app_id": "A123ABC456",
            "team": {"name": "Slack Softball Team", "id": team_id},
            "enterprise": None,
            "is_enterprise_install": False,
            "authed_user": {"id": "U1234"},
        }
        return code

    def access(self, asked: Asked) -> dict[str, Any]:
        """Respond in the documented form of `oauth.v2.access`."""
        client = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if asked.headers.get("authorization") != f"Basic {client}":
            return {"ok": False, "error": "bad_client_secret"}
        code = dict(parse_qsl(asked.body.decode())).get("code", "")
        return self.codes.pop(code, {"ok": False, "error": "invalid_code"})

    def reply(self, asked: Asked) -> Reply:
        is_authorized = asked.headers.get("authorization", "").removeprefix("Bearer ") in self.tokens
        if asked.path == "/api/oauth.v2.access":
            return say(self.access(asked))
        if asked.path == "/api/files.info":
            if not is_authorized:
                return say({"ok": False, "error": "invalid_auth"})
            file_id = {**asked.query, **dict(parse_qsl(asked.body.decode()))}.get("file", "")
            if file_id not in self.kept:
                return say({"ok": False, "error": "file_not_found"})
            return say({"ok": True, "file": self.file(file_id), "comments": []})
        if not is_authorized:
            return LOGIN_PAGE
        if asked.path.startswith("/files-pri/"):
            # Some files redirect once, and the target demands the token too.
            return Reply(
                status=302, headers={"Location": f"{self.url}/files-edge/{asked.path.split('/')[2]}"}
            )
        sample = self.kept.get(asked.path.rpartition("-")[2])
        return give(sample) if sample else Reply(status=404)
