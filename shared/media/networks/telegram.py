"""Telegram's bots.

Updates are not signed; instead, a header contains the secret that was passed to `setWebhook`. A file's URL is
requested when the file is fetched. The URL contains the bot's token, so it is never logged. The public server offers
no file above 20 MB.
"""

import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from shared.egress.errors import MediaTooLarge, SourceStatusError
from shared.errors import DomainError
from shared.media.attachments import Attachment, Source
from shared.media.errors import SourceBusy, SourceGone, SourceRefused, SourceUnreadable
from shared.media.networks.base import Ask, NetworkSetting, api_base_url
from shared.media.networks.messages import NetworkMessage, as_message_text
from shared.media.networks.payloads import as_count, as_id, as_object, as_objects, as_text, read_object
from shared.media.networks.signatures import SharedSecret, WebhookSignature
from shared.media.networks.webhooks import AccountPart, Credentials, Payload, WebhookRequest, WebhookResponse

MESSAGES = (
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "business_message",
    "edited_business_message",
)
NEW_MESSAGE_UPDATES = ("message", "channel_post", "business_message")
"""The kinds of updates that contain a new message."""
MEDIA_TYPES = {
    "animation": "video/mp4",
    "document": None,
    "audio": None,
    "voice": "audio/ogg",
    "video": "video/mp4",
    "video_note": "video/mp4",
}
"""The members of a message that hold one file, with the type of those that Telegram encodes itself."""


class Telegram:
    """Telegram."""

    name = "telegram"
    title = "Telegram"
    callback = "`setWebhook` with `url` and `secret_token`"
    signature = WebhookSignature(
        header="X-Telegram-Bot-Api-Secret-Token", setting="secretToken", algorithm=SharedSecret(), signed=()
    )
    settings: Sequence[NetworkSetting] = (
        NetworkSetting(
            name="secretToken",
            description="The secret_token given to setWebhook; make up 16 to 256 of A-Za-z0-9_-.",
            pattern=re.compile(r"[A-Za-z0-9_-]{16,256}", re.ASCII),
        ),
        NetworkSetting(
            name="botToken",
            description="The bot's token, from BotFather.",
            pattern=re.compile(r"[0-9]{3,20}:[A-Za-z0-9_-]{16,128}", re.ASCII),
        ),
        api_base_url(
            "Where the Bot API server is; one's own gives files above 20 MB too.",
            default="https://api.telegram.org",
        ),
    )

    def respond(self, request: WebhookRequest, credentials: Credentials) -> WebhookResponse | None:  # noqa: ARG002
        """Return None: Telegram would treat a body as a call of its API."""
        return None

    def accounts(self, request: WebhookRequest) -> Sequence[AccountPart]:
        """Return the whole body: each bot has a webhook address of its own."""
        return [AccountPart(account=None, request=request)]

    def attachments(self, request: WebhookRequest) -> Sequence[Attachment]:
        """Return the files of a message, also of an edited one and of a channel's post."""
        update = read_object(request.body)
        return [
            attachment
            for name in MESSAGES
            for message in (as_object(update.get(name)),)
            for file, media_type in _files(message)
            for attachment in _attachment(message, file, media_type)
        ]

    def messages(self, request: WebhookRequest) -> Sequence[NetworkMessage]:
        """Return a message or a channel's post."""
        update = read_object(request.body)
        return [message for name in NEW_MESSAGE_UPDATES for message in _message(as_object(update.get(name)))]

    def locate(self, attachment: Attachment, credentials: Credentials, ask: Ask) -> Source:
        """Return the URL from `getFile`."""
        base_url, token = credentials["apiBaseUrl"], credentials["botToken"]
        query = quote(attachment.location["fileId"], safe="")
        try:
            answer = read_object(ask(f"{base_url}/bot{token}/getFile?file_id={query}", {}))
        except SourceStatusError as error:
            raise _refusal(error) from None
        result = as_object(answer.get("result"))
        path = as_text(result.get("file_path"))
        if path is None:
            raise SourceUnreadable
        # A self-hosted server names the path on its disk, in a directory named after the token.
        relative = path.partition(f"/{token}/")[2] or path.lstrip("/")
        return Source(
            url=f"{base_url}/file/bot{token}/{quote(relative)}", size_bytes=as_count(result.get("file_size"))
        )


def _message(message: Payload) -> Iterator[NetworkMessage]:
    sender = as_object(message.get("from"))
    chat_id, message_id = as_id(as_object(message.get("chat")).get("id")), as_id(message.get("message_id"))
    if chat_id is not None and message_id is not None and sender.get("is_bot") is not True:
        names = (as_text(sender.get(name)) for name in ("first_name", "last_name"))
        yield NetworkMessage(
            message_id=f"{chat_id}:{message_id}",
            conversation_id=chat_id,
            text=as_message_text(message.get("text"), message.get("caption")),
            sender_id=as_id(sender.get("id")),
            sender_name=" ".join(filter(None, names)) or None,
        )


def _files(message: Payload) -> Iterator[tuple[Payload, str | None]]:
    """Yield each file of a message, and the media type to use if the message names none."""
    yield from _photo(message.get("photo"))
    for name, media_type in MEDIA_TYPES.items():
        # Skip the document of an animation: it is the same file, for clients that do not support animations.
        if name != "document" or "animation" not in message:
            yield as_object(message.get(name)), media_type
    yield from _sticker(as_object(message.get("sticker")))
    for paid in as_objects(as_object(message.get("paid_media")).get("paid_media")):
        yield from _photo(paid.get("photo"))
        yield as_object(paid.get("video")), MEDIA_TYPES["video"]


def _photo(sizes: object) -> Iterator[tuple[Payload, str]]:
    """Yield the largest of a photo's sizes; all are JPEG."""
    # Choose the largest size, because Telegram offers every photo in several sizes.
    largest = max(as_objects(sizes), key=_area, default=None)
    if largest is not None:
        yield largest, "image/jpeg"


def _area(size: Payload) -> tuple[int, int]:
    area = (as_count(size.get("width")) or 0) * (as_count(size.get("height")) or 0)
    return area, as_count(size.get("file_size")) or 0


def _sticker(sticker: Payload) -> Iterator[tuple[Payload, str]]:
    if sticker.get("is_animated") is True:
        yield sticker, "application/x-tgsticker"
    else:
        yield sticker, "video/webm" if sticker.get("is_video") is True else "image/webp"


def _attachment(message: Payload, file: Payload, media_type: str | None) -> Iterator[Attachment]:
    chat_id = as_id(as_object(message.get("chat")).get("id"))
    message_id, file_id = as_id(message.get("message_id")), as_id(file.get("file_id"))
    if chat_id is not None and message_id is not None and file_id is not None:
        yield Attachment(
            message_id=f"{chat_id}:{message_id}",
            # Prefer file_unique_id, which does not change between updates as file_id may.
            attachment_id=as_id(file.get("file_unique_id")) or file_id,
            location={"fileId": file_id},
            file_name=as_text(file.get("file_name")),
            media_type=as_text(file.get("mime_type")) or media_type,
            size_bytes=as_count(file.get("file_size")),
            conversation_id=chat_id,
        )


def _refusal(error: SourceStatusError) -> DomainError:
    answer = read_object(error.answer)
    description = str(answer.get("description")).lower()
    # The Bot API has no error codes of its own, only texts.
    if "too big" in description:
        return MediaTooLarge()
    if "temporarily" in description:
        return SourceBusy()
    if error.status in (401, 403, 404):
        # The Bot API responds 400 for a missing file, and 401 for a bad token or 404 if it is malformed.
        return SourceRefused()
    wait_seconds = as_count(as_object(answer.get("parameters")).get("retry_after"))
    if wait_seconds is not None:
        return SourceBusy(retry_after_seconds=wait_seconds)
    return error if error.is_transient else SourceGone()
