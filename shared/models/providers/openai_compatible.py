"""A provider with OpenAI's HTTP interface: OpenAI, OpenRouter, Ollama, vLLM, llama.cpp's server and similar ones.

A call is one HTTP request, without redirects, cookies or credentials from the environment. The request is repeated only
if it was sent over an idle connection that broke before the upstream had received a byte of the request.
"""

import json
import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress

import requests
from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse

from shared.models.catalog import ProviderEntry
from shared.models.dialects.requests import Dialect
from shared.models.providers.base import Cancellation, UpstreamRequest
from shared.models.providers.connections import ProviderAdapter, response_of, serving
from shared.models.providers.errors import ProviderError, refusal
from shared.models.providers.response_reader import AnswerStream
from shared.models.providers.watchdog import Call, Watchdog
from shared.observability.telemetry import get_logger

log = get_logger(__name__)

MAX_REFUSAL_BYTES = 64 << 10
SECONDS_FOR_A_REFUSAL = 5.0
SOCKET_SLACK_SECONDS = 5.0
_PATHS = {Dialect.CHAT: "/chat/completions", Dialect.RESPONSES: "/responses"}
_SUCCESS = range(200, 300)
_STREAM = "text/event-stream, application/json"
_FAILED = (requests.RequestException, HTTPError, OSError, ValueError)
# Create the encoder once, because `json.dumps` with these options would create one for every call.
_write = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode


class OpenAiCompatibleProvider:
    """A provider with OpenAI's HTTP interface, and its pool of connections."""

    def __init__(
        self, entry: ProviderEntry, watchdog: Watchdog, *, environment: Mapping[str, str] = os.environ
    ) -> None:
        """Create a provider with secrets from the environment. If one is missing, every call fails without cost."""
        self._entry = entry
        self._watchdog = watchdog
        self._adapter = ProviderAdapter()
        self._proxies = dict.fromkeys(("http", "https"), entry.proxy) if entry.proxy else None
        self._missing = [name for name in _variables(entry) if not environment.get(name)]
        self._headers = {} if self._missing else _headers(entry, environment)
        if self._missing:
            log.warning("provider.secret_missing", provider=entry.name, variables=self._missing)

    def open(self, request: UpstreamRequest, *, cancelled: Cancellation) -> AnswerStream:
        """Send the request, and wait for the head of a successful response.

        Raises ProviderError, ProviderTimeout, ProviderOverloaded, UpstreamRefused, CallCancelled.
        """
        if self._missing:
            raise ProviderError("The provider of this model is not configured.", may_have_cost=False)
        first_byte, idle = request.first_byte_timeout_seconds, self._entry.idle_timeout_seconds
        call = Call(
            cancelled=cancelled,
            deadline_at=request.deadline_at,
            first_byte_timeout_seconds=first_byte if request.is_streamed else math.inf,
            idle_timeout_seconds=idle if request.is_streamed else math.inf,
        )
        # Watch the call before connecting, so that the deadline also covers the connection.
        self._watchdog.watch(call)
        try:
            return self._answer(request, call)
        except BaseException:
            self._watchdog.forget(call)
            raise

    def close(self) -> None:
        """Close idle connections. Calls under way continue."""
        self._adapter.close()

    def _answer(self, request: UpstreamRequest, call: Call) -> AnswerStream:
        body = self._send(self._prepared(request), request, call)
        try:
            # http.client accepts a header block that the watchdog cut short as a complete one. So if the call was cut
            # and no body has arrived, raise the error of the cut.
            response = response_of(body)
            if call.reason is not None and not (response and response.has_buffered_bytes()):
                call.raise_if_cut(may_have_cost=True)
            # Stop the idle timeout while this thread works on the received bytes.
            call.pause_timer()
            _refuse_unusable(body, call)
        except BaseException:
            # Close the connection, because its unread bytes would be taken for the next response.
            body.close()
            raise
        return AnswerStream(request.upstream, body, call, self._watchdog)

    def _send(
        self, prepared: requests.PreparedRequest, request: UpstreamRequest, call: Call
    ) -> BaseHTTPResponse:
        # Set the socket's own timeout slightly longer than the watchdog's, as a fallback.
        read_timeout_seconds = SOCKET_SLACK_SECONDS + (
            max(request.first_byte_timeout_seconds, self._entry.idle_timeout_seconds)
            if request.is_streamed
            else max(0.0, request.deadline_at - time.monotonic())
        )
        try:
            return self._send_once(prepared, call, read_timeout_seconds)
        except _FAILED as error:
            if not call.is_unacknowledged or call.reason is not None:
                raise call.failure(_connection_failure(call)) from error
        # The upstream had closed the idle connection and has no byte of the request, so send the request once more.
        call.is_sent = call.is_unacknowledged = False
        try:
            return self._send_once(prepared, call, read_timeout_seconds, connects_anew=True)
        except _FAILED as error:
            raise call.failure(_connection_failure(call)) from error

    def _send_once(
        self,
        prepared: requests.PreparedRequest,
        call: Call,
        read_timeout_seconds: float,
        *,
        connects_anew: bool = False,
    ) -> BaseHTTPResponse:
        connect_seconds = self._entry.connect_timeout_seconds
        with serving(call, connect_timeout_seconds=connect_seconds, connects_anew=connects_anew):
            response = self._adapter.send(
                prepared,
                stream=True,
                timeout=(read_timeout_seconds, read_timeout_seconds),
                verify=self._entry.ca_file or True,
                proxies=self._proxies,
            )
        body: BaseHTTPResponse = response.raw
        return body

    def _prepared(self, request: UpstreamRequest) -> requests.PreparedRequest:
        content = _write(request.body).encode()
        prepared = requests.PreparedRequest()
        prepared.method = "POST"
        prepared.url = self._entry.base_url + _PATHS[request.upstream.dialect]
        # Set the fields directly, because `prepare` would guess encodings and authentication on every call.
        prepared.body = content
        prepared.headers = requests.structures.CaseInsensitiveDict(self._headers)
        prepared.headers["Content-Length"] = str(len(content))
        if request.call_id is not None:
            prepared.headers["X-Client-Request-Id"] = request.call_id
        return prepared


def _connection_failure(call: Call) -> ProviderError:
    if call.is_sent:
        return ProviderError("The connection to the provider broke before its response.", may_have_cost=True)
    return ProviderError("The provider cannot be reached.", may_have_cost=False, is_worth_repeating=True)


def _refuse_unusable(body: BaseHTTPResponse, call: Call) -> None:
    """Raise an error if the response has an error status, is compressed, or is a web page."""
    if body.status not in _SUCCESS:
        # Do not wait long for the error text, which only informs the caller.
        call.shorten_deadline(SECONDS_FOR_A_REFUSAL)
        raise refusal(body.status, body.headers, _start_of(body))
    if body.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
        raise ProviderError(
            "The provider compressed its response, which the request forbids.", may_have_cost=True
        )
    # A web page means that the address is wrong. No model has worked, so the call was free.
    if body.headers.get("content-type", "").lower().startswith("text/html"):
        raise ProviderError(
            "The provider responded with a web page instead of a model's output.", may_have_cost=False
        )


def _start_of(body: BaseHTTPResponse) -> bytes:
    pieces, size_bytes = [], 0
    with suppress(*_FAILED):
        while size_bytes < MAX_REFUSAL_BYTES and (piece := body.read1(MAX_REFUSAL_BYTES)):
            pieces.append(piece)
            size_bytes += len(piece)
    return b"".join(pieces)[:MAX_REFUSAL_BYTES]


def _variables(entry: ProviderEntry) -> list[str]:
    key = [entry.api_key_env] if entry.api_key_env else []
    return [*key, *(variable for _, variable in entry.header_envs)]


def _headers(entry: ProviderEntry, environment: Mapping[str, str]) -> dict[str, str]:
    headers = {
        "User-Agent": "quartermaster",
        "Accept": _STREAM,
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        **dict(entry.headers),
    }
    if entry.api_key_env:
        headers["Authorization"] = f"Bearer {environment[entry.api_key_env].strip()}"
    return headers | {name: environment[variable].strip() for name, variable in entry.header_envs}
