"""Discord's interactions and webhook events. Discord sends ordinary messages only over its gateway, not by webhooks.

The link of a file is valid for about a day (until `ex`). The bot's token is needed to renew a link.
"""

import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import parse_qs, urlsplit

from shared.egress.errors import SourceStatusError
from shared.media.attachments import Attachment, Source
from shared.media.errors import SourceGone
from shared.media.networks.api_errors import explain
from shared.media.networks.base import Ask, NetworkSetting, api_base_url
from shared.media.networks.messages import NetworkMessage, as_message_text
from shared.media.networks.payloads import (
    as_count,
    as_id,
    as_object,
    as_objects,
    as_text,
    as_url,
    read_object,
)
from shared.media.networks.signatures import BODY, Ed25519, Timestamp, WebhookSignature
from shared.media.networks.webhooks import AccountPart, Credentials, Payload, WebhookRequest, WebhookResponse

PING, COMMAND, COMPONENT, AUTOCOMPLETE = 1, 2, 3, 4
TEXT = 3
"""The type of a command's text option."""
PONG = {"type": 1}
# Flag 64 makes the message ephemeral.
RECEIVED = {"type": 4, "data": {"content": "Received.", "flags": 64}}
"""A message that only the sender of the interaction sees."""
UNCHANGED = {"type": 6}
NO_CHOICES = {"type": 8, "data": {"choices": []}}
CLOCK_SKEW_SECONDS = 600
"""A link is renewed so many seconds before its expiry, and treated as expired so many seconds after its expiry."""
_EXPIRY = re.compile(r"[0-9a-f]{1,12}", re.ASCII)


class Discord:
    """Discord."""

    name = "discord"
    title = "Discord"
    callback = "General Information → Interactions Endpoint URL, and Webhooks → Endpoint"
    signature = WebhookSignature(
        header="X-Signature-Ed25519",
        setting="publicKey",
        algorithm=Ed25519(),
        signed=(Timestamp(header="X-Signature-Timestamp", window_seconds=300), BODY),
    )
    settings: Sequence[NetworkSetting] = (
        NetworkSetting(
            name="publicKey",
            description="General Information → Public Key.",
            pattern=re.compile(r"[0-9a-fA-F]{64}", re.ASCII),
        ),
        NetworkSetting(
            name="botToken",
            description="The bot's token, to renew links that have expired; without it they are gone.",
            is_required=False,
        ),
        api_base_url("Where Discord's API is, with its version.", default="https://discord.com/api/v10"),
    )

    def respond(self, request: WebhookRequest, credentials: Credentials) -> WebhookResponse | None:  # noqa: ARG002
        """Return the response to a ping or an interaction, or an empty 204 for an event."""
        payload = read_object(request.body)
        kind = payload.get("type")
        # Type 0 is the ping of webhook events, type 1 that of interactions.
        if kind == 0 or "event" in payload:
            return WebhookResponse(body=b"", media_type="application/json", status=204)
        # Respond to every interaction: without a response, Discord shows an error to the sender.
        responses = {PING: PONG, COMPONENT: UNCHANGED, AUTOCOMPLETE: NO_CHOICES}
        answer = responses.get(kind, RECEIVED) if isinstance(kind, int) else RECEIVED
        return WebhookResponse(body=json.dumps(answer).encode(), media_type="application/json")

    def accounts(self, request: WebhookRequest) -> Sequence[AccountPart]:
        """Return the body with the server in which the command was given."""
        return [AccountPart(account=as_id(read_object(request.body).get("guild_id")), request=request)]

    def attachments(self, request: WebhookRequest) -> Sequence[Attachment]:
        """Return the files of an interaction, of the message it was used on, or of an event's message."""
        payload = read_object(request.body)
        if "event" in payload:
            return list(_message_files(as_object(as_object(payload.get("event")).get("data"))))
        return list(_interaction_files(payload))

    def messages(self, request: WebhookRequest) -> Sequence[NetworkMessage]:
        """Return a command's text, or the message of an event."""
        payload = read_object(request.body)
        if "event" in payload:
            message = as_object(as_object(payload.get("event")).get("data"))
            return list(_message(message, message.get("content"), as_object(message.get("author"))))
        if payload.get("type") != COMMAND:
            return []
        options = as_objects(as_object(payload.get("data")).get("options"))
        # Options of other types hold ids of users, roles or channels and no text.
        words = (at["value"] for at in options if isinstance(at.get("value"), str) and at.get("type") == TEXT)
        user = as_object(payload.get("user")) or as_object(as_object(payload.get("member")).get("user"))
        return list(_message(payload, " ".join(words), user))

    def locate(self, attachment: Attachment, credentials: Credentials, ask: Ask) -> Source:
        """Return the link, renewed if it has expired or is about to."""
        url = attachment.location["url"]
        left_seconds = _left_seconds(url)
        if left_seconds < CLOCK_SKEW_SECONDS and "botToken" in credentials:
            return Source(url=_renew(url, credentials, ask))
        # Treat a link as expired only after the clock skew, because it may still be valid until then.
        if left_seconds < -CLOCK_SKEW_SECONDS:
            raise SourceGone
        return Source(url=url)


def _message(message: Payload, text: object, author: Payload) -> Iterator[NetworkMessage]:
    message_id = as_id(message.get("id"))
    # Leave out messages of other bots, because two agents would answer each other forever.
    if message_id is not None and author.get("bot") is not True:
        yield NetworkMessage(
            message_id=message_id,
            conversation_id=as_id(message.get("channel_id")) or as_id(message.get("lobby_id")),
            text=as_message_text(text),
            sender_id=as_id(author.get("id")),
            sender_name=as_text(author.get("global_name")) or as_text(author.get("username")),
        )


def _interaction_files(interaction: Payload) -> Iterator[Attachment]:
    resolved = as_object(as_object(interaction.get("data")).get("resolved"))
    channel_id = as_id(interaction.get("channel_id"))
    for file in as_object(resolved.get("attachments")).values():
        yield from _attachment(
            as_object(file), message_id=as_id(interaction.get("id")), channel_id=channel_id
        )
    for message in as_object(resolved.get("messages")).values():
        yield from _message_files(as_object(message))


def _message_files(message: Payload) -> Iterator[Attachment]:
    channel_id = as_id(message.get("channel_id")) or as_id(message.get("lobby_id"))
    for file in as_objects(message.get("attachments")):
        yield from _attachment(file, message_id=as_id(message.get("id")), channel_id=channel_id)


def _attachment(file: Payload, *, message_id: str | None, channel_id: str | None) -> Iterator[Attachment]:
    attachment_id, url = as_id(file.get("id")), as_url(file.get("url"))
    if attachment_id is not None and message_id is not None and url is not None:
        yield Attachment(
            message_id=message_id,
            attachment_id=attachment_id,
            location={"url": url},
            file_name=as_text(file.get("filename")),
            media_type=as_text(file.get("content_type")),
            size_bytes=as_count(file.get("size")),
            conversation_id=channel_id,
        )


def _left_seconds(url: str) -> float:
    """Return the remaining validity of a link by this host's clock; infinite if it has no expiry."""
    # `ex` is the expiry in hexadecimal Unix seconds.
    expiry = _parameters(url).get("ex", [""])[0]
    return int(expiry, 16) - time.time() if _EXPIRY.fullmatch(expiry) else math.inf


def _parameters(url: str) -> Mapping[str, Sequence[str]]:
    try:
        return parse_qs(urlsplit(url).query)
    except ValueError:
        return {}


def _renew(url: str, credentials: Credentials, ask: Ask) -> str:
    try:
        answer = ask(
            f"{credentials['apiBaseUrl']}/attachments/refresh-urls",
            # The link's own permission has expired, so the request needs the bot's.
            {"Authorization": f"Bot {credentials['botToken']}", "Content-Type": "application/json"},
            method="POST",
            body=json.dumps({"attachment_urls": [url]}).encode(),
        )
    except SourceStatusError as error:
        raise explain(error) from None
    for renewed in as_objects(read_object(answer).get("refreshed_urls")):
        link = as_url(renewed.get("refreshed"))
        if link is not None:
            return link
    raise SourceGone
