"""The usage routes: what calls to models have consumed, and what the client's own key has spent and has left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import httpx

from quartermaster._sync.sending import Sender
from quartermaster._wire import write_timestamp
from quartermaster.resources import read
from quartermaster.usage import KeyUsage, UsageReport

Dimension = Literal["model", "principal", "user", "deployment", "identity", "key", "distribution"]


class Usage:
    """Usage of the organization that the caller acts in."""

    def __init__(self, sender: Sender, auth: httpx.Auth) -> None:
        self._sender = sender
        self._auth = auth

    def report(
        self,
        *,
        window: Literal["24h", "7d", "30d"] | None = None,
        starts_at: datetime | None = None,
        ends_at: datetime | None = None,
        interval: Literal["hour", "day"] | None = None,
        group_by: Sequence[Dimension] = (),
        only: Mapping[Dimension, UUID | str] | None = None,
    ) -> UsageReport:
        """Sum a window back from now (24 hours unless said) or a span of time, which needs time zones.

        `interval` makes a series, `group_by` names dimensions (the model, without an interval), and `only` keeps the
        calls of one value of each that it names. Raises ApiError, ConnectionFailed.
        """
        query: dict[str, str | None] = {
            "window": window,
            "from": write_timestamp(starts_at) if starts_at else None,
            "to": write_timestamp(ends_at) if ends_at else None,
            "interval": interval,
            "group_by": ",".join(group_by) or None,
            **{name: str(value) for name, value in (only or {}).items()},
        }
        return read(UsageReport, self._get("/v1/usage", query))

    def key(self) -> KeyUsage:
        """Get what the client's own key, or its deployment, has spent and has left.

        Raises ApiError, ConnectionFailed.
        """
        body = self._get("/v1/key", {})
        return read(KeyUsage, body["data"])

    def _get(self, path: str, query: Mapping[str, str | None]) -> Mapping[str, Any]:
        url, wanted = self._sender.url(path), {name: at for name, at in query.items() if at is not None}

        def make_request() -> httpx.Request:
            return self._sender.http.build_request("GET", url, params=wanted)

        response = self._sender.send(make_request, self._auth, is_repeatable=True)
        body: Mapping[str, Any] = response.json()
        return body
