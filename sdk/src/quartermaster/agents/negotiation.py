"""ASGI middleware that activates extensions, and lists the active extensions in every response."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quartermaster.agents.extensions import HEADER, Extension, activate, read_requested

ACTIVE_KEY = "quartermaster.extensions"


class Negotiation:
    """Sets the active extensions in the scope and in a header of every response, including errors and streams."""

    def __init__(self, app: ASGIApp, *, declared: Sequence[Extension]) -> None:
        self._app = app
        self._declared = declared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        requested = read_requested(Headers(scope=scope).getlist(HEADER))
        active = activate(self._declared, requested)

        async def echo(message: Message) -> None:
            if message["type"] == "http.response.start" and active:
                MutableHeaders(scope=message)[HEADER] = ", ".join(active)
            await send(message)

        await self._app({**scope, ACTIVE_KEY: active}, receive, echo)
