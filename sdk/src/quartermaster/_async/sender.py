"""Send requests, retry failed requests if a retry is safe, and raise exceptions that contain no request."""

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
        """Send a request with retries, and return the successful response. The caller reads and closes the response.

        If `reads_body` is set, this method has read the body already. Raises ApiError or ConnectionFailed.
        """
        outcome, _ = await self._send_with_retries(
            make_request, auth, is_repeatable=is_repeatable, reads_body=reads_body
        )
        return _response_of(outcome)

    async def remove(self, make_request: MakeRequest, auth: httpx.Auth | None) -> httpx.Response | None:
        """Send a request that removes a resource, with retries.

        Return None if one attempt got no response and a later attempt got a 404: the first of the two has removed the
        resource. Raises ApiError or ConnectionFailed.
        """
        outcome, may_be_done = await self._send_with_retries(
            make_request, auth, is_repeatable=True, reads_body=True
        )
        return None if may_be_done and isinstance(outcome, NotFound) else _response_of(outcome)

    async def _send_with_retries(
        self, make_request: MakeRequest, auth: httpx.Auth | None, *, is_repeatable: bool, reads_body: bool
    ) -> tuple[Outcome, bool]:
        """Return the outcome of the last attempt, and whether an earlier attempt may have taken effect."""
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
            # Remember every attempt: the service may refuse the last attempt because an earlier one took effect.
            may_be_done = may_be_done or may_have_succeeded(outcome)

    async def send_once(
        self, request: httpx.Request, auth: httpx.Auth | None, *, reads_body: bool = True
    ) -> Outcome:
        """Send a request once, and return the response or a description of the failure."""
        # Return the failure: an exception raised here would refer to the request, which contains the credential.
        try:
            # Pass stream=True always, so that this function serves both callers that need the body now and callers
            # that read the body later.
            response = await self.http.send(request, auth=auth, stream=True)
            # Read the body of an error response too: the exception needs its details, and the body is small.
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
