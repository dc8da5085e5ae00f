"""Slack's Events API.

A message may name a file by id only (Slack Connect, `check_file_info`) or a deleted one (`tombstone`), so every file
is requested with `files.info` when it is fetched. A token without `files:read` gets Slack's login page with status
200.
"""

import json
import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from shared.errors import DomainError
from shared.media.attachments import Attachment, Source
from shared.media.errors import SourceBusy, SourceElsewhere, SourceGone, SourceRefused, SourceUnreadable
from shared.media.networks.api_errors import ask_api, require_hosted, require_url, trust
from shared.media.networks.base import Ask, NetworkSetting, SettingKind, api_base_url
from shared.media.networks.messages import NetworkMessage, as_message_text
from shared.media.networks.payloads import (
    as_count,
    as_id,
    as_object,
    as_objects,
    as_text,
    as_url,
    is_among,
    read_object,
)
from shared.media.networks.signatures import BODY, Hmac, Timestamp, WebhookSignature
from shared.media.networks.webhooks import AccountPart, Credentials, Payload, WebhookRequest, WebhookResponse

HOSTS = frozenset({".slack.com", ".slack-edge.com"})
PAGE = "text/html"
_PERSON_SUBTYPES = frozenset({None, "file_share", "thread_broadcast", "me_message"})
"""Subtypes of messages that a person wrote."""
_GONE_MODES = frozenset({"tombstone", "hidden_by_limit"})
_GONE = frozenset({"file_deleted", "file_not_found"})
_BUSY = frozenset({"ratelimited", "fatal_error", "internal_error", "request_timeout", "service_unavailable"})
_REFUSED = frozenset(
    {
        "access_denied",
        "account_inactive",
        "ekm_access_denied",
        "enterprise_is_restricted",
        "invalid_auth",
        "missing_scope",
        "no_permission",
        "not_allowed_token_type",
        "not_authed",
        "org_login_required",
        "team_access_not_granted",
        "token_expired",
        "token_revoked",
        "two_factor_setup_required",
    }
)


class Slack:
    """Slack."""

    name = "slack"
    title = "Slack"
    callback = (
        "Event Subscriptions → Request URL; subscribe to `message.channels`, `message.groups`, `message.im`…"
    )
    signature = WebhookSignature(
        header="X-Slack-Signature",
        setting="signingSecret",
        algorithm=Hmac(digest="sha256", prefix="v0="),
        signed=(b"v0:", Timestamp(header="X-Slack-Request-Timestamp", window_seconds=300), b":", BODY),
    )
    settings: Sequence[NetworkSetting] = (
        NetworkSetting(
            name="signingSecret",
            description="Basic Information → App Credentials → Signing Secret.",
        ),
        NetworkSetting(
            name="botToken",
            description="OAuth & Permissions → Bot User OAuth Token, with files:read, and a …:history for each kind.",
        ),
        NetworkSetting(
            name="clientId",
            description="Basic Information → App Credentials → Client ID, to install the app in workspaces.",
            kind=SettingKind.IDENTIFIER,
            pattern=re.compile(r"[0-9.]{3,64}"),
            is_required=False,
        ),
        NetworkSetting(
            name="clientSecret",
            description="Basic Information → App Credentials → Client Secret, to install the app in workspaces.",
            is_required=False,
        ),
        api_base_url("Where Slack's Web API is.", default="https://slack.com/api"),
    )

    def respond(self, request: WebhookRequest, credentials: Credentials) -> WebhookResponse | None:  # noqa: ARG002
        """Return the challenge of `url_verification`."""
        payload = read_object(request.body)
        challenge = as_text(payload.get("challenge"))
        if payload.get("type") != "url_verification" or challenge is None:
            return None
        return WebhookResponse(
            body=json.dumps({"challenge": challenge}).encode(), media_type="application/json"
        )

    def accounts(self, request: WebhookRequest) -> Sequence[AccountPart]:
        """Return the body with the workspace in which the app is installed.

        A shared channel's message may be of another workspace, so `authorizations` comes before `team_id`.
        """
        payload = read_object(request.body)
        installed = [as_id(at.get("team_id")) for at in as_objects(payload.get("authorizations"))]
        team_id = next((at for at in installed if at is not None), None) or as_id(payload.get("team_id"))
        return [AccountPart(account=team_id, request=request)]

    def attachments(self, request: WebhookRequest) -> Sequence[Attachment]:
        """Return the files of a message, or the file of `file_shared`."""
        payload = read_object(request.body)
        event = as_object(payload.get("event"))
        if event.get("type") == "file_shared":
            return list(_shared_file(event))
        message = as_object(event.get("message")) if event.get("subtype") == "message_changed" else event
        if event.get("type") not in ("message", "app_mention") or _is_own(message, payload):
            return []
        return list(_files(message, channel=as_id(event.get("channel"))))

    def messages(self, request: WebhookRequest) -> Sequence[NetworkMessage]:
        """Return a message that a person wrote."""
        payload = read_object(request.body)
        event = as_object(payload.get("event"))
        is_message = event.get("type") in ("message", "app_mention")
        if (
            not is_message
            or event.get("subtype") not in _PERSON_SUBTYPES
            or "bot_id" in event
            or _is_own(event, payload)
        ):
            return []
        return list(_message(event))

    def locate(self, attachment: Attachment, credentials: Credentials, ask: Ask) -> Source:
        """Return the URL from `files.info`, which the bot token opens."""
        authorization = {"Authorization": f"Bearer {credentials['botToken']}"}
        base_url = credentials["apiBaseUrl"]
        query = quote(attachment.location["fileId"], safe="")
        answer = ask_api(ask, f"{base_url}/files.info?file={query}", authorization)
        # Slack's API returns errors with status 200.
        if answer.get("ok") is not True:
            raise _refusal(answer.get("error"))
        file = as_object(answer.get("file"))
        _require_present(file)
        url = require_url(as_url(file.get("url_private_download")) or as_url(file.get("url_private")))
        hosts = trust(HOSTS, base_url)
        require_hosted(url, hosts)
        return Source(
            url=url,
            headers=authorization,
            trusted_hosts=hosts,
            size_bytes=as_count(file.get("size")) if file.get("mode") == "hosted" else None,
            # HTML instead of a file is the login page, unless the file itself is HTML.
            refused_media_types=frozenset() if file.get("mimetype") == PAGE else frozenset({PAGE}),
        )


def _message(event: Payload) -> Iterator[NetworkMessage]:
    channel, timestamp = as_id(event.get("channel")), as_id(event.get("ts"))
    if channel is not None and timestamp is not None:
        yield NetworkMessage(
            message_id=f"{channel}:{timestamp}",
            conversation_id=channel,
            text=as_message_text(event.get("text")),
            sender_id=as_id(event.get("user")),
        )


def _files(message: Payload, *, channel: str | None) -> Iterator[Attachment]:
    """Yield the files of a message and of those that it forwards, each once."""
    timestamp = as_id(message.get("ts"))
    forwarded = [
        file for at in as_objects(message.get("attachments")) for file in as_objects(at.get("files"))
    ]
    # By id: a forwarded file may also be attached to the message itself, and that entry wins.
    files = {as_id(file.get("id")): file for file in (*forwarded, *as_objects(message.get("files")))}
    for file_id, file in files.items():
        # Deleted files and files hosted elsewhere are listed too, but cannot be fetched.
        is_kept = not is_among(file.get("mode"), _GONE_MODES) and file.get("is_external") is not True
        if file_id is not None and channel is not None and timestamp is not None and is_kept:
            yield Attachment(
                message_id=f"{channel}:{timestamp}",
                attachment_id=file_id,
                location={"fileId": file_id},
                file_name=as_text(file.get("name")) or as_text(file.get("title")),
                media_type=as_text(file.get("mimetype")),
                size_bytes=as_count(file.get("size")) if file.get("mode") == "hosted" else None,
                conversation_id=channel,
            )


def _shared_file(event: Payload) -> Iterator[Attachment]:
    """Yield the file of `file_shared`, an event that does not name its message."""
    channel = as_id(event.get("channel_id"))
    file_id = as_id(event.get("file_id")) or as_id(as_object(event.get("file")).get("id"))
    if channel is not None and file_id is not None:
        yield Attachment(
            message_id=f"{channel}:{file_id}",
            attachment_id=file_id,
            location={"fileId": file_id},
            conversation_id=channel,
        )


def _is_own(message: Payload, payload: Payload) -> bool:
    """Return whether the app itself posted this: an agent's message must not come back as received."""
    app_id = payload.get("api_app_id")
    own = (message.get("app_id"), as_object(message.get("bot_profile")).get("app_id"))
    return isinstance(app_id, str) and app_id in own


def _require_present(file: Payload) -> None:
    if is_among(file.get("mode"), _GONE_MODES) or file.get("file_access") == "file_not_found":
        raise SourceGone
    if file.get("file_access") == "access_denied":
        raise SourceRefused
    if file.get("is_external") is True:
        raise SourceElsewhere


def _refusal(error: object) -> DomainError:
    if is_among(error, _GONE):
        return SourceGone()
    if is_among(error, _REFUSED):
        return SourceRefused()
    return SourceBusy() if is_among(error, _BUSY) else SourceUnreadable()
