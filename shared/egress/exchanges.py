"""Send one request and read the head of its response. Failures are raised as the errors of this package.

This module uses only the transport adapter of `requests`, because a session would follow redirects and would use
cookies, `.netrc` credentials and the proxies of the environment.
"""

import http.client
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

import requests
import urllib3
from requests.structures import CaseInsensitiveDict

from shared.egress.connections import CONNECT_SECONDS, GuardedAdapter
from shared.egress.deadlines import Deadline
from shared.egress.errors import (
    ConnectionFailed,
    EgressError,
    EncodingRefused,
    FetchTimedOut,
    HeaderRefused,
    MediaTooLarge,
    SourceTruncated,
)
from shared.egress.policy import EgressPolicy
from shared.egress.urls import Target

CHUNK_BYTES = 64 * 1024
MAX_RETRY_AFTER_SECONDS = 24 * 3600
USER_AGENT = "Quartermaster/1.0"
_LENGTH = re.compile(r"\d{1,18}", re.ASCII)
_FAILURES = (
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    OSError,
    ValueError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The request to send."""

    method: str
    target: Target
    headers: Mapping[str, str]
    body: bytes | None = None


class Reply:
    """A response whose head was read. While the exchange is open, `chunks` reads the body."""

    def __init__(self, response: requests.Response, deadline: Deadline) -> None:
        self._response = response
        self._deadline = deadline
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers

    @property
    def content_length(self) -> int | None:
        """The announced length; None if there is none. Raises SourceTruncated if the value is not a number."""
        announced = self.headers.get("Content-Length")
        # Ignore Content-Length if there is a Transfer-Encoding (RFC 9112, 6.3).
        if announced is None or "Transfer-Encoding" in self.headers:
            return None
        if not _LENGTH.fullmatch(announced):
            raise SourceTruncated("The source's Content-Length is not a number.")
        return int(announced)

    def require_length_within(self, maximum_bytes: int) -> int | None:
        """Return the announced length.

        Raises MediaTooLarge if it exceeds `maximum_bytes`; the body is then not read.
        """
        length = self.content_length
        if length is not None and length > maximum_bytes:
            raise MediaTooLarge
        return length

    @property
    def retry_after_seconds(self) -> int | None:
        """The seconds to wait by the header `Retry-After`, at most a day; None if the response has no such header."""
        return _retry_after_seconds(self.headers.get("Retry-After"))

    def check_encoding(self) -> None:
        """Raise EncodingRefused if the body is compressed or encoded in another way."""
        codings = f"{self.headers.get('Content-Encoding', '')},{self.headers.get('Transfer-Encoding', '')}"
        if {coding.strip().lower() for coding in codings.split(",")} - {"", "identity", "chunked"}:
            raise EncodingRefused

    def chunks(self, maximum_bytes: int) -> Iterator[bytes]:
        """Yield the body. Raises MediaTooLarge, SourceTruncated, FetchTimedOut and ConnectionFailed."""
        self.require_length_within(maximum_bytes)
        received = 0
        pieces = self._response.raw.stream(CHUNK_BYTES, decode_content=False)
        while True:
            with translated(self._deadline, SourceTruncated):
                piece: bytes | None = next(pieces, None)
            if piece is None:
                return
            received += len(piece)
            self._deadline.count(len(piece))
            if received > maximum_bytes:
                raise MediaTooLarge
            with self._deadline.processing():
                yield piece

    def arriving(self, maximum_bytes: int) -> Iterator[bytes]:
        """Yield each piece of a streamed body as soon as the piece arrives. Raises the errors that `chunks` raises."""
        received = 0
        while True:
            with translated(self._deadline, SourceTruncated):
                piece: bytes = self._response.raw.read1(CHUNK_BYTES, decode_content=False)
            if not piece:
                return
            received += len(piece)
            if received > maximum_bytes:
                raise MediaTooLarge
            yield piece


@contextmanager
def exchange(
    request: Request,
    *,
    policy: EgressPolicy,
    deadline: Deadline,
    idle_seconds: float,
    connect_seconds: float = CONNECT_SECONDS,
) -> Iterator[Reply]:
    """Send a request and yield its response. Raises the errors of `errors.py`."""
    adapter = GuardedAdapter(policy, deadline, connect_seconds)
    try:
        try:
            with translated(deadline):
                response = adapter.send(
                    _prepare(request), stream=True, timeout=(connect_seconds, idle_seconds), verify=True
                )
        except EgressError as error:
            error.was_sent = deadline.has_sent
            raise
        try:
            yield Reply(response, deadline)
        finally:
            # Close the connection: closing only the response would read the rest of the body.
            response.raw.close()
    finally:
        adapter.close()


@contextmanager
def translated(deadline: Deadline, otherwise: type[EgressError] = ConnectionFailed) -> Iterator[None]:
    """Translate the exceptions of a block into the errors of this package.

    If the deadline has passed at the end of the block, raise FetchTimedOut even if the block succeeded.
    """
    try:
        yield
    except _FAILURES as error:
        deadline.check()
        raise _translate(error, otherwise) from None
    deadline.check()


def _prepare(request: Request) -> requests.PreparedRequest:
    headers = CaseInsensitiveDict({"User-Agent": USER_AGENT, "Accept": "*/*"})
    headers.update(request.headers)
    # Override the caller's headers, so that no content is compressed and no connection is reused.
    headers["Accept-Encoding"] = "identity"
    headers["Connection"] = "close"
    prepared = requests.PreparedRequest()
    try:
        prepared.prepare(
            method=request.method,
            url=request.target.url,
            headers=dict(headers),
            data=request.body,
        )
    except requests.exceptions.InvalidHeader:
        raise HeaderRefused from None
    return prepared


def _translate(error: Exception, otherwise: type[EgressError]) -> EgressError:
    reasons = list(_reasons(error))
    # Check for the specific reasons first: urllib3 wraps a timeout or a truncation in a more general error.
    if any(isinstance(reason, _TIMEOUTS) for reason in reasons):
        return FetchTimedOut()
    if any(isinstance(reason, _TRUNCATIONS) for reason in reasons):
        return SourceTruncated()
    if any(isinstance(reason, ssl.SSLError) for reason in reasons):
        return ConnectionFailed("The source's certificate is not valid for it, or it does not speak TLS.")
    return otherwise()


_TIMEOUTS = (requests.Timeout, urllib3.exceptions.TimeoutError, TimeoutError)
_TRUNCATIONS = (http.client.IncompleteRead, urllib3.exceptions.IncompleteRead)


def _reasons(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all its causes. Libraries store a cause in different attributes."""
    seen: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting and len(seen) < 16:  # noqa: PLR2004 (libraries nest three or four)
        reason = waiting.pop()
        if isinstance(reason, BaseException) and reason not in seen:
            seen.append(reason)
            yield reason
            waiting += [reason.__cause__, reason.__context__, getattr(reason, "reason", None), *reason.args]


def _retry_after_seconds(value: str | None) -> int | None:
    if value is None:
        return None
    if _LENGTH.fullmatch(value.strip()):
        return min(int(value), MAX_RETRY_AFTER_SECONDS)
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    seconds = int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - time.time())
    # Return 0 if the date is in the past.
    return min(max(seconds, 0), MAX_RETRY_AFTER_SECONDS)
