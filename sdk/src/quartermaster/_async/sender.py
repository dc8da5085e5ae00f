"""Send requests, retry them if that is safe, and raise exceptions that contain no request."""

from __future__ import annotations

import httpx

from quartermaster._concurrency import async_sleep
from quartermaster._retries import (
    MakeRequest,
    RequestFailure,
    describe_failure,
    may_have_succeeded,
    retry_delay_seconds,
)
from quartermaster._settings import Settings
from quartermaster.errors import ApiError, ConnectionFailed, NotFound, read_error

Outcome = httpx.Response | ApiError | RequestFailure


class AsyncSender:
    """Sends requests over one connection pool."""

    def __init__(self, http: httpx.AsyncClient, settings: Settings) -> None:
        self.http = http
        self.settings = settings

    def url(self, path: str) -> str:
        """Return the URL of a path of the service."""
        return f"{self.settings.base_url}{path}"

    async def send(
        self, make_request: MakeRequest, auth: httpx.Auth | None, *, is_repeatable: bool
    ) -> httpx.Response:
        """Send a request with retries, and return the successful response with its body.

        Raises ApiError or ConnectionFailed.
        """
        return await self.open(make_request, auth, is_repeatable=is_repeatable, reads_body=True)

    async def open(
        self,
        make_request: MakeRequest,
        auth: httpx.Auth | None,
        *,
        is_repeatable: bool = True,
        reads_body: bool = False,
    ) -> httpx.Response:
        """Send a request with retries, and return the successful response, which the caller reads and closes.

        With `reads_body` the body is read already. Raises ApiError or ConnectionFailed.
        """
        outcome, _ = await self._send_with_retries(
            make_request, auth, is_repeatable=is_repeatable, reads_body=reads_body
        )
        return _response_of(outcome)

    async def remove(self, make_request: MakeRequest, auth: httpx.Auth | None) -> httpx.Response | None:
        """Send a request that removes a resource, with retries.

        Return None if an attempt without a response was followed by a 404: the lost attempt has removed the resource.
        Raises ApiError or ConnectionFailed.
        """
        outcome, may_be_done = await self._send_with_retries(
            make_request, auth, is_repeatable=True, reads_body=True
        )
        return None if may_be_done and isinstance(outcome, NotFound) else _response_of(outcome)

    async def _send_with_retries(
        self, make_request: MakeRequest, auth: httpx.Auth | None, *, is_repeatable: bool, reads_body: bool
    ) -> tuple[Outcome, bool]:
        """Return the outcome of the last attempt, and whether an earlier one may have had its effect."""
        retries, may_be_done = 0, False
        while True:
            outcome = await self.send_once(make_request(), auth, reads_body=reads_body)
            if isinstance(outcome, httpx.Response):
                return outcome, may_be_done
            pause = retry_delay_seconds(
                outcome,
                retries_so_far=retries,
                max_retries=self.settings.max_retries,
                is_repeatable=is_repeatable,
            )
            if pause is None:
                return outcome, may_be_done
            await async_sleep(pause)
            retries += 1
            # Any earlier attempt counts: the last one may have been refused because the first had its effect.
            may_be_done = may_be_done or may_have_succeeded(outcome)

    async def send_once(
        self, request: httpx.Request, auth: httpx.Auth | None, *, reads_body: bool = True
    ) -> Outcome:
        """Send a request once, and return the response or the failure."""
        # Failures are returned: an exception raised here would keep the request, with its credential, as its context.
        try:
            # stream=True always, so that one function serves both bodies that are read here and those that the
            # caller reads.
            response = await self.http.send(request, auth=auth, stream=True)
            # An error has a small body, which is needed for the exception.
            if reads_body or not response.is_success:
                await response.aread()
        except httpx.RequestError as error:
            return describe_failure(request, error)
        if response.is_success:
            return response
        return read_error(response.status_code, response.headers, response.content)


def _response_of(outcome: Outcome) -> httpx.Response:
    if isinstance(outcome, httpx.Response):
        return outcome
    raise outcome if isinstance(outcome, ApiError) else ConnectionFailed(outcome.reason)
