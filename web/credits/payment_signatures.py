"""Signature schemes of payment systems: Standard Webhooks, and Stripe's single header."""

import hmac
import re
from collections.abc import Iterator, Mapping, Sequence

from shared.media.networks.signatures import BODY, Part, WebhookSignature
from shared.media.networks.standard_webhooks import SETTING, STANDARD_WEBHOOKS
from shared.media.networks.webhooks import SignatureInvalid, WebhookRequest

# Stripe's own default. An older event is refused, because it may be a replay.
TOLERANCE_SECONDS = 300
# A header has a timestamp and one signature for each active secret, so a valid header is shorter than this.
MAXIMUM_FIELDS = 16
_HEADER = "Stripe-Signature"
_SECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)


class _StripeSignatures:
    """Stripe's signatures: one or more fields `v1=` with an HMAC-SHA256 in hexadecimal.

    There are several while a secret is rotated.
    """

    name = "HMAC-SHA256 in hexadecimal after `v1=`"

    def is_valid(self, sent: str, secret: str, text: bytes) -> bool:
        """Return whether any signature is valid. Compare each signature in constant time."""
        made = hmac.digest(secret.encode(), text, "sha256").hex().encode()
        signatures = [value for name, value in _fields(sent) if name == "v1"]
        equal = [hmac.compare_digest(made, one.encode("utf-8", "surrogatepass")) for one in signatures]
        # `equal` is a list and not a generator, so that all signatures are compared before any() returns.
        return any(equal)


def _fields(header: str) -> Iterator[tuple[str, str]]:
    # Limit the number of fields before parsing: a long header must not cost a comparison for each field.
    for field in header.split(",", MAXIMUM_FIELDS)[:MAXIMUM_FIELDS]:
        name, _, value = field.strip().partition("=")
        yield name, value


def _time(request: WebhookRequest) -> Sequence[bytes]:
    sent = dict(_fields(request.headers.get(_HEADER.lower(), ""))).get("t", "")
    # Limit the difference in both directions: with a time in the future, an event could be replayed for
    # longer.
    if not _SECONDS.fullmatch(sent) or abs(request.received_at - int(sent)) > TOLERANCE_SECONDS:
        raise SignatureInvalid
    return [sent.encode()]


STRIPE = WebhookSignature(
    header=_HEADER,
    setting=SETTING,
    algorithm=_StripeSignatures(),
    signed=(Part(name="`t` of the header", forms=_time), b".", BODY),
)
SIGNATURES: Mapping[str, WebhookSignature] = {"stripe": STRIPE, "standard": STANDARD_WEBHOOKS}
