"""Send requests: again where that is safe, with errors as exceptions that hold no request."""

from __future__ import annotations

import httpx

from quartermaster._concurrency import sleep
from quartermaster._retries import MakeRequest, Unanswered, may_have_worked, pause_before_retry, unanswered
from quartermaster._settings import Settings
from quartermaster.errors import ApiError, ConnectionFailed, NotFound, read_error

Outcome = httpx.Response | ApiError | Unanswered


class Sender:
    """Sends requests over one pool of connections."""

    def __init__(self, http: httpx.Client, settings: Settings) -> None:
        self.http = http
        self.settings = settings

    def url(self, path: str) -> str:
        """Give the address of a path of the service."""
        return f"{self.settings.base_url}{path}"

    def send(
        self, make_request: MakeRequest, auth: httpx.Auth | None, *, is_repeatable: bool
    ) -> httpx.Response:
        """Send a request until it is answered with success; the answer is read to its end.

        Raises ApiError and ConnectionFailed.
        """
        return self.open(make_request, auth, is_repeatable=is_repeatable, is_read=True)

    def open(
        self,
        make_request: MakeRequest,
        auth: httpx.Auth | None,
        *,
        is_repeatable: bool = True,
        is_read: bool = False,
    ) -> httpx.Response:
        """Send a request; the caller reads and closes the answer, unless `is_read`."""
        outcome, _ = self._repeat(make_request, auth, is_repeatable=is_repeatable, is_read=is_read)
        return _answer_of(outcome)

    def remove(self, make_request: MakeRequest, auth: httpx.Auth | None) -> httpx.Response | None:
        """Send a request that removes something; None where an attempt did so whose answer was lost.

        What is not found then is taken as removed. Raises ApiError and ConnectionFailed.
        """
        outcome, may_be_done = self._repeat(make_request, auth, is_repeatable=True, is_read=True)
        return None if may_be_done and isinstance(outcome, NotFound) else _answer_of(outcome)

    def _repeat(
        self, make_request: MakeRequest, auth: httpx.Auth | None, *, is_repeatable: bool, is_read: bool
    ) -> tuple[Outcome, bool]:
        """Give what came of the last attempt, and whether one before it may have worked."""
        retries, may_be_done = 0, False
        while True:
            outcome = self.attempt(make_request(), auth, is_read=is_read)
            if isinstance(outcome, httpx.Response):
                return outcome, may_be_done
            pause = pause_before_retry(
                outcome,
                retries_so_far=retries,
                max_retries=self.settings.max_retries,
                is_repeatable=is_repeatable,
            )
            if pause is None:
                return outcome, may_be_done
            sleep(pause)
            retries += 1
            may_be_done = may_be_done or may_have_worked(outcome)

    def attempt(
        self, request: httpx.Request, auth: httpx.Auth | None, *, is_read: bool = True
    ) -> Outcome:
        """Send a request once, and give what comes of it."""
        # Failures are values here: what is raised later has no context that holds the request and its credential.
        try:
            response = self.http.send(request, auth=auth, stream=True)
            if is_read or not response.is_success:
                response.read()
        except httpx.RequestError as error:
            return unanswered(request, error)
        if response.is_success:
            return response
        return read_error(response.status_code, response.headers, response.content)


def _answer_of(outcome: Outcome) -> httpx.Response:
    if isinstance(outcome, httpx.Response):
        return outcome
    raise outcome if isinstance(outcome, ApiError) else ConnectionFailed(outcome.reason)
