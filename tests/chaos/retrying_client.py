"""Retry a request until its result is definite: the client's part in every idempotent operation."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import requests

from tests.chaos.observations import Observations

ATTEMPT_SECONDS = 45.0
"""How long a client waits for one answer: where a link is cut nobody says that it was lost."""
GIVE_UP_SECONDS = 4 * ATTEMPT_SECONDS
TRANSIENT = (408, 429, 502, 503, 504, 507)
TRANSIENT_CODES = ("operation_in_progress", "file_pending")
LOST_CODES = ("blob_missing", "blob_damaged")
LOST_FOR_GOOD = 5
"""After so many answers in a row that content is not there, it will not come back."""

Send = Callable[[str], requests.Response]


class NoDefiniteResponse(Exception):
    """An operation got no definite response before the client's timeout."""


@contextmanager
def recording_failure(observations: Observations, who: str) -> Iterator[None]:
    """Record an error that ends a client within the block as a violation: a failed thread must not pass for success."""
    try:
        yield
    except NoDefiniteResponse as error:
        observations.violate(str(error))
    except Exception as error:  # noqa: BLE001 (an error of any kind is a violation)
        observations.violate(f"{who} failed: {error!r}")


class RetryingClient:
    """Sends a request to one web process after the other; an invalid response is a violation."""

    def __init__(self, fronts: Sequence[str], observations: Observations) -> None:
        self._fronts = fronts
        self._observations = observations

    def ask(self, what: str, send: Send) -> requests.Response:
        """Repeat a request until it has a definite response."""
        give_up_at = time.monotonic() + GIVE_UP_SECONDS
        attempt = lost = 0
        while time.monotonic() < give_up_at:
            front = self._fronts[(attempt + threading.get_native_id()) % len(self._fronts)]
            attempt += 1
            answer = self._send(send, front)
            if answer is None:
                time.sleep(0.05)
                continue
            lost = lost + 1 if code_of(answer) in LOST_CODES else 0
            if lost == LOST_FOR_GOOD or self._is_definite(what, answer):
                return answer
            time.sleep(0.1)
        raise NoDefiniteResponse(f"{what}: no definite answer in {GIVE_UP_SECONDS:.0f} s")

    def ask_once(self, what: str, send: Send, front: str) -> requests.Response | None:
        """Send a request that is not idempotent to one web process. Return None if its result is unknown."""
        answer = self._send(send, front)
        return answer if answer is not None and self._is_definite(what, answer) else None

    def ask_when(self, what: str, send: Send) -> tuple[requests.Response, float]:
        """Return the definite response, and the time of its request."""
        asked_at = 0.0

        def send_and_note(front: str) -> requests.Response:
            nonlocal asked_at
            asked_at = time.time()
            return send(front)

        return self.ask(what, send_and_note), asked_at

    def _send(self, send: Send, front: str) -> requests.Response | None:
        try:
            return send(front)
        except requests.RequestException as error:
            self._observations.count_retry(type(error).__name__)
            return None

    def _is_definite(self, what: str, answer: requests.Response) -> bool:
        if answer.status_code == 500:
            self._observations.violate(f"{what}: {answer.text}")
        elif not _is_transient(answer):
            return True
        self._observations.count_retry(str(answer.status_code))
        return False


def code_of(answer: requests.Response) -> str | None:
    """Return the code of a problem response; None for any other response."""
    if answer.headers.get("Content-Type") != "application/problem+json":
        return None
    code: str | None = answer.json().get("code")
    return code


def _is_transient(answer: requests.Response) -> bool:
    if answer.status_code in TRANSIENT:
        return True
    return answer.status_code == 409 and code_of(answer) in TRANSIENT_CODES
