"""Any route of the service: JSON for JSON, or a stream of events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from quartermaster._sync.sending import Sender
from quartermaster._events import EventReader
from quartermaster._settings import MODEL_TIMEOUT
from quartermaster.errors import ConnectionFailed

_REPEATABLE = frozenset({"GET", "HEAD", "PUT"})


class Raw:
    """Asks what the rest of the client has no method for."""

    def __init__(self, sender: Sender, auth: httpx.Auth) -> None:
        self._sender = sender
        self._auth = auth

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        json: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Ask a route of the API reference; give the JSON of its answer, None for an empty one.

        Repeated like any other call, unless it is a POST or a PATCH. A DELETE whose answer was lost gives None when
        there is nothing left to remove. Raises ApiError, ConnectionFailed.
        """
        url = self._sender.url(path)

        def make_request() -> httpx.Request:
            return self._sender.http.build_request(
                method, url, params=query, json=json, content=content, headers=headers
            )

        response: httpx.Response | None
        if method == "DELETE":
            response = self._sender.remove(make_request, self._auth)
        else:
            response = self._sender.send(make_request, self._auth, is_repeatable=method in _REPEATABLE)
        return response.json() if response is not None and response.content else None

    def stream(
        self, path: str, *, json: Any, headers: Mapping[str, str] | None = None
    ) -> Iterator[Any]:
        """Send JSON to a route that answers with events; give the data of each as it comes.

        Raises ApiError, and ConnectionFailed when the stream breaks off or has an event that is not JSON.
        """
        url = self._sender.url(path)

        def make_request() -> httpx.Request:
            wanted = {"Accept": "text/event-stream", **(headers or {})}
            return self._sender.http.build_request(
                "POST", url, json=json, headers=wanted, timeout=MODEL_TIMEOUT
            )

        response = self._sender.open(make_request, self._auth, is_repeatable=False)
        reader = EventReader()
        try:
            for piece in response.iter_bytes():
                for event in reader.feed(piece):
                    yield event
        except httpx.RequestError as error:
            raise ConnectionFailed(f"POST {response.request.url.path}: {type(error).__name__}") from None
        finally:
            response.close()
