"""Webhooks as a network module gets them, without any server."""

import time
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from shared.media.networks.base import Network
from shared.media.networks.registry import NETWORKS
from shared.media.networks.webhooks import WebhookRequest
from tests.support.networks import STAND_INS, StandIn

URL = "https://qm.example/distributions/01890000-0000-7000-8000-000000000000/webhooks/x"


def request(
    body: bytes,
    headers: Mapping[str, str],
    *,
    url: str = URL,
    method: str = "POST",
    received_at: float | None = None,
) -> WebhookRequest:
    """Return a request as the web process passes it to a network."""
    return WebhookRequest(
        method=method,
        public_url=url,
        query=dict(parse_qsl(urlsplit(url).query, keep_blank_values=True)),
        headers={name.lower(): value for name, value in headers.items()},
        body=body,
        received_at=time.time() if received_at is None else received_at,
    )


def signed(stand_in: StandIn, body: bytes) -> WebhookRequest:
    """A webhook of now."""
    return request(body, stand_in.sign(body, url=URL))


def network_of(stand_in: StandIn) -> Network:
    return NETWORKS[stand_in.name]


def stand_ins() -> list[StandIn]:
    """One of each, none of them listening."""
    return [make() for make in STAND_INS]
