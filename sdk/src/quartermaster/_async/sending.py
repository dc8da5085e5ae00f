"""Send requests: again where that is safe, with errors as exceptions that hold no request."""

from __future__ import annotations

import httpx

from quartermaster._concurrency import async_sleep
from quartermaster._retries import MakeRequest, Unanswered, pause_before_retry, unanswered
from quartermaster._settings import Settings
from quartermaster.errors import ApiError, ConnectionFailed, read_error


class AsyncSender:
    """Sends requests over one pool of connections."""

    def __init__(self, http: httpx.AsyncClient, settings: Settings) -> None:
        self.http = http
        self.settings = settings

    def url(self, path: str) -> str:
        """Give the address of a path of the service."""
        return f"{self.settings.base_url}{path}"

    async def send(
        self, make_request: MakeRequest, auth: httpx.Auth | None, *, is_repeatable: bool
    ) -> httpx.Response:
        """Send a request until it is answered with success; the answer is read to its end.

        Raises ApiError and ConnectionFailed.
        """
        return await self.open(make_request, auth, is_repeatable=is_repeatable, is_read=True)

    async def open(
        self,
        make_request: MakeRequest,
        auth: httpx.Auth | None,
        *,
        is_repeatable: bool = True,
        is_read: bool = False,
    ) -> httpx.Response:
        """Send a request; the caller reads and closes the answer, unless `is_read`."""
        retries = 0
        while True:
            outcome = await self.attempt(make_request(), auth, is_read=is_read)
            if isinstance(outcome, httpx.Response):
                return outcome
            pause = pause_before_retry(
                outcome,
                retries_so_far=retries,
                max_retries=self.settings.max_retries,
                is_repeatable=is_repeatable,
            )
            if pause is None:
                raise outcome if isinstance(outcome, ApiError) else ConnectionFailed(outcome.reason)
            await async_sleep(pause)
            retries += 1

    async def attempt(
        self, request: httpx.Request, auth: httpx.Auth | None, *, is_read: bool = True
    ) -> httpx.Response | ApiError | Unanswered:
        """Send a request once, and give what comes of it."""
        # Failures are values here: what is raised later has no context that holds the request and its credential.
        try:
            response = await self.http.send(request, auth=auth, stream=True)
            if is_read or not response.is_success:
                await response.aread()
        except httpx.RequestError as error:
            return unanswered(request, error)
        if response.is_success:
            return response
        return read_error(response.status_code, response.headers, response.content)
