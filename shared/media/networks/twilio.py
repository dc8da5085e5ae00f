"""Twilio's inbound messages, by SMS, MMS and WhatsApp.

Twilio signs the address that it was given and the form's parameters, so the address has to be known as it was given:
it is made from `BASE_URL`, never from what a proxy passed on. There is no timestamp; that a message is imported once
is what protects against replays.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import parse_qsl, urlsplit

from shared.media.attachments import Attachment, Source
from shared.media.networks.answers import require_hosted, trust
from shared.media.networks.base import (
    Ask,
    Credentials,
    NetworkSetting,
    SettingKind,
    SignatureInvalid,
    WebhookAnswer,
    WebhookRequest,
)
from shared.media.networks.payloads import as_count, as_id, as_text, as_url, read_object
from shared.media.networks.signatures import accepted, require_match

HOSTS = frozenset({".twilio.com"})
MAX_PARAMETERS = 1000
MAX_MEDIA = 100
"""Ten times as many as Twilio sends with a message."""
FORM = "application/x-www-form-urlencoded"
EMPTY_TWIML = b'<?xml version="1.0" encoding="UTF-8"?><Response/>'
_DEFAULT_PORTS = {"http": 80, "https": 443}
_ADDRESS = re.compile(r"(https?)://([^/?#]*?)(?::(\d{1,5}))?(?=[/?#]|$)(.*)", re.ASCII | re.DOTALL)
_SID = re.compile(r"[A-Za-z]{2}[0-9a-fA-F]{32}", re.ASCII)

Parameters = Sequence[tuple[str, str]]


class Twilio:
    """Twilio."""

    name = "twilio"
    settings: Sequence[NetworkSetting] = (
        NetworkSetting(
            name="accountSid",
            description="Account Info → Account SID.",
            kind=SettingKind.IDENTIFIER,
            pattern=_SID,
        ),
        NetworkSetting(
            name="authToken",
            description="Account Info → Auth Token; signs webhooks and opens the media.",
            signs=True,
        ),
        NetworkSetting(
            name="apiBaseUrl",
            description="Where Twilio's API is.",
            kind=SettingKind.ADDRESS,
            default="https://api.twilio.com",
        ),
    )

    def verify(self, request: WebhookRequest, credentials: Credentials) -> None:
        """Check `X-Twilio-Signature` over the address with and without its port, and the form or the body's digest."""
        signed = "".join(name + value for name, value in _signed_parameters(request))
        require_match(
            request.headers.get("x-twilio-signature", ""),
            [
                _hmac_sha1(token, address + signed)
                for token in accepted(credentials, "authToken")
                for address in _addresses(request.public_url)
            ],
        )

    def answer(self, request: WebhookRequest, credentials: Credentials) -> WebhookAnswer | None:  # noqa: ARG002
        """Say in TwiML that there is nothing to do."""
        return WebhookAnswer(body=EMPTY_TWIML, media_type="text/xml")

    def attachments(self, request: WebhookRequest) -> Sequence[Attachment]:
        """Read the media of a message: `MediaUrl0` and so on."""
        values = dict(_form(request.body)) if _is_form(request) else read_object(request.body)
        return list(_media(values))

    def locate(self, attachment: Attachment, credentials: Credentials, ask: Ask) -> Source:  # noqa: ARG002
        """Open the media with the account's credentials, which its redirect to a store must not see."""
        url = attachment.location["url"]
        require_hosted(url, trust(HOSTS, credentials["apiBaseUrl"]))
        account = f"{credentials['accountSid']}:{credentials['authToken']}".encode()
        return Source(url=url, headers={"Authorization": f"Basic {base64.b64encode(account).decode()}"})


def _signed_parameters(request: WebhookRequest) -> Iterator[tuple[str, str]]:
    """Give what is signed besides the address: a form's parameters, each once; of another body the digest is there."""
    if _is_form(request):
        yield from sorted(set(_form(request.body)))
        return
    digest = hashlib.sha256(request.body).hexdigest()
    require_match(request.query.get("bodySHA256", "").lower(), [digest])


def _is_form(request: WebhookRequest) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM


def _form(body: bytes) -> Parameters:
    try:
        return parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise SignatureInvalid from None


def _addresses(public_url: str) -> Sequence[str]:
    """Give an address as it is, without its port and with it: Twilio signs now one, now another."""
    match = _ADDRESS.fullmatch(public_url)
    if match is None:
        return [public_url]
    scheme, host, port, rest = match.groups()
    with_port = f"{scheme}://{host}:{port or _DEFAULT_PORTS[scheme]}{rest}"
    return [f"{scheme}://{host}{rest}", with_port]


def _hmac_sha1(token: str, signed: str) -> str:
    return base64.b64encode(
        hmac.digest(token.encode(), signed.encode("utf-8", "surrogatepass"), "sha1")
    ).decode()


def _media(values: Mapping[str, object]) -> Iterator[Attachment]:
    message_id = as_id(values.get("MessageSid")) or as_id(values.get("SmsMessageSid"))
    count = as_count(values.get("NumMedia")) or 0
    for number in range(min(count, MAX_MEDIA)):
        url = as_url(values.get(f"MediaUrl{number}"))
        if url is not None and message_id is not None:
            yield Attachment(
                message_id=message_id,
                attachment_id=_media_sid(url) or str(number),
                location={"url": url},
                media_type=as_text(values.get(f"MediaContentType{number}")),
                conversation_id=as_id(values.get("From")),
            )


def _media_sid(url: str) -> str | None:
    try:
        sid = urlsplit(url).path.rpartition("/")[2]
    except ValueError:
        return None
    return sid if _SID.fullmatch(sid) else None
