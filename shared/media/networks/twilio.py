"""Twilio's inbound messages, by SMS, MMS and WhatsApp.

Twilio signs the URL of the webhook. This URL is computed from BASE_URL and never from a proxy's headers. A signature
has no timestamp, but the unique key of imports prevents replays.
"""

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import parse_qsl, urlsplit

from shared.media.attachments import Attachment, Source
from shared.media.networks.api_errors import require_hosted, trust
from shared.media.networks.base import Ask, NetworkSetting, SettingKind, api_base_url
from shared.media.networks.messages import NetworkMessage, as_message_text
from shared.media.networks.payloads import as_count, as_id, as_text, as_url, read_object
from shared.media.networks.signatures import Hmac, Part, Subject, WebhookSignature, require_match
from shared.media.networks.webhooks import (
    AccountPart,
    Credentials,
    SignatureInvalid,
    WebhookRequest,
    WebhookResponse,
)

HOSTS = frozenset({".twilio.com"})
MAX_PARAMETERS = 1000
MAX_MEDIA = 100
"""The most media that are read from one message: ten times the number that Twilio sends."""
FORM = "application/x-www-form-urlencoded"
EMPTY_TWIML = b'<?xml version="1.0" encoding="UTF-8"?><Response/>'
_DEFAULT_PORTS = {"http": 80, "https": 443}
_ADDRESS = re.compile(r"(https?)://([^/?#]*?)(?::(\d{1,5}))?(?=[/?#]|$)(.*)", re.ASCII | re.DOTALL)
_SID = re.compile(r"[A-Za-z]{2}[0-9a-fA-F]{32}", re.ASCII)

Parameters = Sequence[tuple[str, str]]


def _addresses(request: WebhookRequest) -> Sequence[bytes]:
    """Return the URL without and with its port, because Twilio may sign either form."""
    match = _ADDRESS.fullmatch(request.public_url)
    # A URL without an http scheme and host has only one form.
    if match is None:
        return [request.public_url.encode("utf-8", "surrogatepass")]
    scheme, host, port, rest = match.groups()
    forms = (f"{scheme}://{host}{rest}", f"{scheme}://{host}:{port or _DEFAULT_PORTS[scheme]}{rest}")
    return [form.encode("utf-8", "surrogatepass") for form in forms]


def _parameters(request: WebhookRequest) -> Sequence[bytes]:
    """Return a form's parameters, each once; for any other body the address contains its digest."""
    if _is_form(request):
        # Sort the parameters and drop repeated pairs, as Twilio's own libraries do.
        pairs = sorted(set(_form(request.body)))
        return ["".join(name + value for name, value in pairs).encode("utf-8", "surrogatepass")]
    # Compare the digest of the body with the one in the URL, because the signature covers only the URL.
    digest = hashlib.sha256(request.body).hexdigest()
    require_match(request.query.get("bodySHA256", "").lower(), [digest])
    return [b""]


def _is_form(request: WebhookRequest) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM


def _form(body: bytes) -> Parameters:
    try:
        return parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise SignatureInvalid from None


class Twilio:
    """Twilio."""

    name = "twilio"
    title = "Twilio"
    callback = (
        "the number, messaging service or WhatsApp sender → “A message comes in”: Webhook, HTTP **POST**"
    )
    signature = WebhookSignature(
        header="X-Twilio-Signature",
        setting="authToken",
        algorithm=Hmac(digest="sha1", in_base64=True),
        signed=(
            Part(name="the address", subject=Subject.ADDRESS, forms=_addresses),
            Part(name="the form's parameters, sorted", subject=Subject.BODY, forms=_parameters),
        ),
    )
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
        ),
        api_base_url("Where Twilio's API is.", default="https://api.twilio.com"),
    )

    def respond(self, request: WebhookRequest, credentials: Credentials) -> WebhookResponse | None:  # noqa: ARG002
        """Return empty TwiML: no reply is sent."""
        return WebhookResponse(body=EMPTY_TWIML, media_type="text/xml")

    def accounts(self, request: WebhookRequest) -> Sequence[AccountPart]:
        """Return the body with the number or WhatsApp sender that received the message."""
        values = dict(_form(request.body)) if _is_form(request) else read_object(request.body)
        return [AccountPart(account=as_id(values.get("To")), request=request)]

    def attachments(self, request: WebhookRequest) -> Sequence[Attachment]:
        """Return the media of a message: `MediaUrl0` and so on."""
        values = dict(_form(request.body)) if _is_form(request) else read_object(request.body)
        return list(_media(values))

    def messages(self, request: WebhookRequest) -> Sequence[NetworkMessage]:
        """Return a received message."""
        values = dict(_form(request.body)) if _is_form(request) else read_object(request.body)
        message_id = _message_id(values)
        if message_id is None:
            return []
        message = NetworkMessage(
            message_id=message_id,
            conversation_id=as_id(values.get("From")),
            text=as_message_text(values.get("Body")),
            sender_id=as_id(values.get("From")),
            sender_name=as_text(values.get("ProfileName")),
        )
        return [message]

    def locate(self, attachment: Attachment, credentials: Credentials, ask: Ask) -> Source:  # noqa: ARG002
        """Return the media's URL with the account's credentials, which its redirect to a store must not receive."""
        url = attachment.location["url"]
        require_hosted(url, trust(HOSTS, credentials["apiBaseUrl"]))
        account = f"{credentials['accountSid']}:{credentials['authToken']}".encode()
        return Source(url=url, headers={"Authorization": f"Basic {base64.b64encode(account).decode()}"})


def _message_id(values: Mapping[str, object]) -> str | None:
    return as_id(values.get("MessageSid")) or as_id(values.get("SmsMessageSid"))


def _media(values: Mapping[str, object]) -> Iterator[Attachment]:
    message_id = _message_id(values)
    count = as_count(values.get("NumMedia")) or 0
    # Limit `NumMedia` before the loop, because the sender chose its value.
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
