"""WhatsApp's Cloud API.

One webhook may contain many messages of several accounts. The URL of a media id is requested when the file is
fetched, because the URL is valid for only five minutes. The response also has the digest and the size. The URL needs
the token too.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from urllib.parse import quote

from shared.egress.errors import SourceStatusError
from shared.errors import DomainError
from shared.media.attachments import Attachment, Source
from shared.media.errors import SourceBusy, SourceGone, SourceRefused
from shared.media.networks.api_errors import explain, require_hosted, require_url, trust
from shared.media.networks.base import Ask, NetworkSetting, api_base_url
from shared.media.networks.messages import NetworkMessage, as_message_text
from shared.media.networks.payloads import (
    as_count,
    as_id,
    as_object,
    as_objects,
    as_sha256,
    as_text,
    as_url,
    is_among,
    read_object,
)
from shared.media.networks.signatures import BODY, Handshake, Hmac, WebhookSignature
from shared.media.networks.webhooks import AccountPart, Credentials, Payload, WebhookRequest, WebhookResponse

HOSTS = frozenset({".fbsbx.com", ".facebook.com", ".fbcdn.net", ".whatsapp.net"})
MEDIA_KINDS = ("image", "document", "audio", "video", "sticker")
USER_AGENT = "Quartermaster/1.0"
"""The User-Agent of requests. Some of the network's servers refuse a request without this header."""
# Codes of the Graph API: 190 is an expired token, 200 to 299 are missing permissions.
_REFUSED = frozenset({0, 3, 10, 102, 190, *range(200, 300)})
# Temporary failures and rate limits.
_BUSY = frozenset({1, 2, 4, 17, 32, 613, 80007, 130429, 131000, 131016})
# 100 is an unknown object, 131052 media that could not be downloaded.
_GONE = frozenset({100, 131052})


class WhatsApp:
    """WhatsApp."""

    name = "whatsapp"
    title = "WhatsApp"
    callback = "WhatsApp → Configuration → Callback URL and Verify token; subscribe to `messages`"
    signature = WebhookSignature(
        header="X-Hub-Signature-256",
        setting="appSecret",
        algorithm=Hmac(digest="sha256", prefix="sha256="),
        signed=(BODY,),
        handshake=Handshake(parameter="hub.verify_token", setting="verifyToken"),
    )
    settings: Sequence[NetworkSetting] = (
        NetworkSetting(name="appSecret", description="App settings → Basic → App secret."),
        NetworkSetting(
            name="verifyToken",
            description="The verify token given with the callback URL; make up 16 characters or more.",
        ),
        NetworkSetting(
            name="accessToken",
            description="A system user's token with whatsapp_business_messaging.",
            pattern=re.compile(r"[\x21-\x7e]{16,2048}"),
        ),
        api_base_url("Where the Graph API is, with its version.", default="https://graph.facebook.com/v24.0"),
    )

    def respond(self, request: WebhookRequest, credentials: Credentials) -> WebhookResponse | None:  # noqa: ARG002
        """Return the challenge of the handshake."""
        if request.method != "GET" or request.query.get("hub.mode") != "subscribe":
            return None
        challenge = as_text(request.query.get("hub.challenge")) or ""
        return WebhookResponse(body=challenge.encode(), media_type="text/plain; charset=utf-8")

    def accounts(self, request: WebhookRequest) -> Sequence[AccountPart]:
        """Return the changes of each number by its `phone_number_id`."""
        changes: dict[str | None, list[Payload]] = {}
        for entry in as_objects(read_object(request.body).get("entry")):
            for change in as_objects(entry.get("changes")):
                metadata = as_object(as_object(change.get("value")).get("metadata"))
                changes.setdefault(as_id(metadata.get("phone_number_id")), []).append(change)
        # Do not change the body if it has only one account, which is the usual case.
        if len(changes) < 2:  # noqa: PLR2004 (one account, or none)
            return [AccountPart(account=next(iter(changes), None), request=request)]
        return [
            AccountPart(account=account, request=replace(request, body=_document(of_account)))
            for account, of_account in changes.items()
        ]

    def attachments(self, request: WebhookRequest) -> Sequence[Attachment]:
        """Return the media of all messages of all changes."""
        payload = read_object(request.body)
        return [
            attachment
            for entry in as_objects(payload.get("entry"))
            for change in as_objects(entry.get("changes"))
            if change.get("field") == "messages"
            for message in as_objects(as_object(change.get("value")).get("messages"))
            for attachment in _media(message)
        ]

    def messages(self, request: WebhookRequest) -> Sequence[NetworkMessage]:
        """Return all messages of all changes."""
        return [
            message
            for entry in as_objects(read_object(request.body).get("entry"))
            for change in as_objects(entry.get("changes"))
            if change.get("field") == "messages"
            for message in _messages(as_object(change.get("value")))
        ]

    def locate(self, attachment: Attachment, credentials: Credentials, ask: Ask) -> Source:
        """Return the URL of a media id."""
        base_url = credentials["apiBaseUrl"]
        headers = {"Authorization": f"Bearer {credentials['accessToken']}", "User-Agent": USER_AGENT}
        answer = _ask(ask, f"{base_url}/{quote(attachment.location['mediaId'], safe='')}", headers)
        url = require_url(as_url(answer.get("url")))
        hosts = trust(HOSTS, base_url)
        require_hosted(url, hosts)
        return Source(
            url=url,
            headers=headers,
            trusted_hosts=hosts,
            size_bytes=as_count(answer.get("file_size")),
            sha256=as_sha256(answer.get("sha256")),
        )


def _document(changes: Sequence[Payload]) -> bytes:
    # The JSON may be rebuilt, because the signature of the received bytes was verified before.
    return json.dumps({"entry": [{"changes": changes}]}).encode()


def _messages(value: Payload) -> Iterator[NetworkMessage]:
    contacts = as_objects(value.get("contacts"))
    names = {as_id(at.get("wa_id")): as_text(as_object(at.get("profile")).get("name")) for at in contacts}
    for message in as_objects(value.get("messages")):
        message_id, sender = as_id(message.get("id")), as_id(message.get("from"))
        if message_id is not None:
            yield NetworkMessage(
                message_id=message_id,
                conversation_id=sender,
                text=_text(message),
                sender_id=sender,
                sender_name=names.get(sender),
            )


def _text(message: Payload) -> str | None:
    """Return a text, the caption of a medium, or the title of a chosen button or row."""
    interactive = as_object(message.get("interactive"))
    return as_message_text(
        as_object(message.get("text")).get("body"),
        *(as_object(message.get(kind)).get("caption") for kind in MEDIA_KINDS),
        as_object(message.get("button")).get("text"),
        *(as_object(interactive.get(kind)).get("title") for kind in ("button_reply", "list_reply")),
    )


def _media(message: Payload) -> Iterator[Attachment]:
    message_id = as_id(message.get("id"))
    for kind in MEDIA_KINDS:
        media = as_object(message.get(kind))
        media_id = as_id(media.get("id"))
        if message_id is not None and media_id is not None:
            yield Attachment(
                message_id=message_id,
                attachment_id=media_id,
                location={"mediaId": media_id},
                file_name=as_text(media.get("filename")),
                media_type=as_text(media.get("mime_type")),
                sha256=as_sha256(media.get("sha256")),
                conversation_id=as_id(message.get("from")),
            )


def _ask(ask: Ask, url: str, headers: Mapping[str, str]) -> Payload:
    try:
        return read_object(ask(url, headers))
    except SourceStatusError as error:
        raise _refusal(error) from None


def _refusal(error: SourceStatusError) -> DomainError:
    """Return the error for the Graph API's own code: its HTTP status is 400 for most errors."""
    code = as_object(read_object(error.answer).get("error")).get("code")
    if is_among(code, _REFUSED):
        return SourceRefused()
    if is_among(code, _BUSY):
        return SourceBusy(retry_after_seconds=error.retry_after_seconds)
    return SourceGone() if is_among(code, _GONE) else explain(error)
