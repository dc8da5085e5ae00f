"""The usage operations: report model calls, and return the spending and limits of the client's own credential."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import httpx

from quartermaster._sync.sender import Sender
from quartermaster._wire import write_timestamp
from quartermaster.resources import read
from quartermaster.usage import KeyUsage, UsageReport

Dimension = Literal["model", "principal", "user", "deployment", "identity", "key", "distribution"]


class Usage:
    """The usage of the caller's organization."""

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
        """Return the usage of a time span: a window that ends now (default: 24 hours), or `starts_at` to `ends_at`.

        `starts_at` and `ends_at` need a time zone. With `interval`, the report is a time series. `group_by` names the
        dimensions of the groups; the default without an interval is the model. `only` filters by one value for each
        dimension. Raises ApiError or ConnectionFailed.
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
        """Return the spending and limits of the client's own API key or deployment.

        Raises ApiError or ConnectionFailed.
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
