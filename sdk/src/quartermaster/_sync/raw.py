"""Send requests to any route of the service whose response is JSON or a stream of events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from quartermaster._sync.sender import Sender
from quartermaster._events import EventReader
from quartermaster._settings import MODEL_TIMEOUT
from quartermaster.errors import ConnectionFailed

# A second PUT sets the same state again, so it is safe. DELETE is not listed: remove() retries it.
_REPEATABLE = frozenset({"GET", "HEAD", "PUT"})


class Raw:
    """Requests to routes for which the client has no method."""

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
        """Send a request to a route of the API reference, and return the response's JSON, or None if it is empty.

        GET, HEAD, PUT and DELETE are retried after every transient failure, other methods only if they had no effect.
        If the response to a DELETE was lost and the retry returns 404, the deletion counts as done and the method
        returns None. Raises ApiError or ConnectionFailed.
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
        # A 204 has no content, and empty content is not valid JSON, so do not parse it.
        return response.json() if response is not None and response.content else None

    def stream(
        self, path: str, *, json: Any, headers: Mapping[str, str] | None = None
    ) -> Iterator[Any]:
        """Send a POST with JSON to a route that streams events, and yield the data of each event when it arrives.

        Raises ApiError if the service returns an error. Raises ConnectionFailed if the stream ends early, or if an
        event's data is not JSON.
        """
        url = self._sender.url(path)

        def make_request() -> httpx.Request:
            wanted = {"Accept": "text/event-stream", **(headers or {})}
            return self._sender.http.build_request(
                "POST", url, json=json, headers=wanted, timeout=MODEL_TIMEOUT
            )

        # Not repeatable: a retry would charge a model call twice, or send a message to an agent twice.
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
