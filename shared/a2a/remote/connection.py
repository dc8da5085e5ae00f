"""HTTP connections to agents' servers, with the headers that authenticate a request and attribute it.

Each request obeys the egress policy (`shared/egress`) and is aborted when its turn is canceled. A stream has a limit
for the silence between two bytes, a size limit, and the time limit of a turn. A thread that reads from a socket cannot
be interrupted. So another thread of the process checks all exchanges, and shuts down the sockets of canceled turns and
of exchanges that take too long.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from shared.a2a.remote.bindings import EVENTS, AgentBinding, Call
from shared.a2a.remote.endpoints import Binding, Endpoint
from shared.a2a.remote.errors import EndpointMissing, ResponseInvalid, ResponseTooLarge
from shared.a2a.remote.http_json import HttpJson
from shared.a2a.remote.jsonrpc import JsonRpc
from shared.a2a.remote.request_tokens import mint_request_token
from shared.a2a.remote.response_parser import read_document
from shared.a2a.updates import Turn
from shared.config.settings import Settings
from shared.db.database import Database
from shared.egress.deadlines import Deadline
from shared.egress.errors import EgressError, MediaTooLarge
from shared.egress.exchanges import Reply, Request, exchange
from shared.egress.observation import observed
from shared.egress.policy import EgressPolicy
from shared.egress.urls import check_headers, parse_url
from shared.encryption import Encryption
from shared.identity.tokens.signing_keys import SigningKeys
from shared.identity.tokens.usage_attribution import Attribution, mint_usage_attribution
from shared.models.providers.sse import EventTooLarge, SseParser
from shared.observability.spans import HEADER
from shared.observability.tracing import traceparent
from shared.runtime.periodic_thread import InFlight

POLL_SECONDS = 0.2
IDLE_SECONDS = 45.0
"""A stream that is silent for this long is given up; servers send a comment every 15 seconds."""
ASK_SECONDS = 30.0
MAXIMUM_EVENT_BYTES = 16 << 20
# The limit for the body of an error: an error needs no more, and a hostile server may send any amount.
REFUSAL_BYTES = 64 << 10
OK = 200


@dataclass(frozen=True, slots=True, eq=False)
class _Open:
    """A request in progress, with its deadline and a function that returns whether it must be aborted."""

    deadline: Deadline
    is_unwanted: Callable[[], bool]


def _check_exchanges(exchanges: Sequence[_Open]) -> None:
    for open_exchange in exchanges:
        if open_exchange.is_unwanted():
            open_exchange.deadline.abort()
        else:
            open_exchange.deadline.abort_if_over()


class Exchanges:
    """The running requests of this process to agents. The thread that checks these requests starts with the first."""

    def __init__(self, policy: EgressPolicy, *, maximum_bytes: int) -> None:
        """Create the exchanges of a process. One response or stream may have at most `maximum_bytes`."""
        self.policy = policy
        self.maximum_bytes = maximum_bytes
        self.open = InFlight({"remote-agents": _check_exchanges}, pause_seconds=POLL_SECONDS)


class AgentConnection:
    """Sends requests to the server of one agent, for one turn."""

    def __init__(
        self,
        exchanges: Exchanges,
        binding: AgentBinding,
        headers: Callable[[], Mapping[str, str]],
        *,
        is_unwanted: Callable[[], bool],
        stream_seconds: float,
    ) -> None:
        """Create a connection. `headers` is called for each request, because its tokens expire."""
        self._exchanges = exchanges
        self._headers = headers
        self._is_unwanted = is_unwanted
        self._stream_seconds = stream_seconds
        self.binding = binding

    def ask(self, call: Call, *, seconds: float = ASK_SECONDS) -> Any:
        """Return the result of a call.

        Raises ErrorResponse, ResponseInvalid, ResponseTooLarge and EgressError.
        """
        with self._exchange(call, seconds, seconds, {}, self._is_unwanted) as reply:
            return self._result(reply)

    @contextmanager
    def stream(
        self,
        call: Call,
        *,
        idle_seconds: float = IDLE_SECONDS,
        headers: Mapping[str, str] | None = None,
        is_unwanted: Callable[[], bool] | None = None,
    ) -> Iterator[Iterator[Any]]:
        """Yield an iterator over the results of a call, in the order of their arrival.

        If the server does not stream, the iterator has one result. Raises the errors of `ask`, also while the caller
        reads results.
        """
        unwanted = is_unwanted or self._is_unwanted
        with self._exchange(call, self._stream_seconds, idle_seconds, headers or {}, unwanted) as reply:
            is_stream = reply.headers.get("Content-Type", "").partition(";")[0].strip().lower() == EVENTS
            if reply.status == OK and is_stream:
                reply.check_encoding()
                yield self._results(reply)
            else:
                yield iter((self._result(reply),))

    @contextmanager
    def _exchange(
        self,
        call: Call,
        seconds: float,
        idle_seconds: float,
        headers: Mapping[str, str],
        is_unwanted: Callable[[], bool],
    ) -> Iterator[Reply]:
        sent = {**self._headers(), "Accept": call.accepts, **headers}
        if call.body is not None:
            sent["Content-Type"] = "application/json"
        if (present := traceparent()) is not None:
            sent[HEADER] = present  # requests of the agent to this service join the trace
        # Check the headers when all are known, because the endpoint's credential may contain line breaks.
        check_headers(sent)
        policy = self._exchanges.policy
        target = parse_url(call.url, policy, with_secrets=True)
        request = Request(method=call.method, target=target, headers=sent, body=call.body)
        with (
            _translated(),
            observed("agent", target.host),
            Deadline(seconds, has_timer=False) as deadline,
            self._exchanges.open.track(_Open(deadline, is_unwanted)),
            exchange(request, policy=policy, deadline=deadline, idle_seconds=idle_seconds) as reply,
        ):
            yield reply

    def _result(self, reply: Reply) -> Any:
        if reply.status != OK:
            error = self.binding.read_error(reply.status, _read_refusal(reply))
            error.retry_after_seconds = reply.retry_after_seconds
            raise error
        reply.check_encoding()
        return self.binding.result(read_document(b"".join(reply.chunks(self._exchanges.maximum_bytes))))

    def _results(self, reply: Reply) -> Iterator[Any]:
        parser = SseParser(max_event_bytes=MAXIMUM_EVENT_BYTES)
        for piece in reply.arriving(self._exchanges.maximum_bytes):
            for event in parser.feed(piece):
                # Skip empty events, which servers send to keep the connection open.
                if event.data.strip():
                    yield self.binding.result(read_document(event.data))


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (MediaTooLarge, EventTooLarge):
        raise ResponseTooLarge from None


def _read_refusal(reply: Reply) -> Any:
    with contextlib.suppress(EgressError, ResponseInvalid):
        return read_document(b"".join(reply.chunks(REFUSAL_BYTES)))
    return None


VERSION = "1.0"


def _never() -> bool:
    return False


class AgentConnector:
    """Creates connections to agents' servers for a process. Threads may share it."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._settings = settings
        self._keys = SigningKeys(database, settings)
        self._encryption = Encryption(settings)
        self._exchanges = Exchanges(EgressPolicy.of(settings), maximum_bytes=settings.a2a_remote_answer_bytes)

    def connect(self, endpoint: Endpoint) -> AgentConnection:
        """Return a connection for requests of the service itself, without an attribution. Raises EndpointMissing."""
        return self._connect(endpoint, lambda: self._headers(endpoint, None, ()), _never)

    def connect_for(self, endpoint: Endpoint, turn: Turn) -> AgentConnection:
        """Return a connection for requests of a turn, with the turn's attribution. Raises EndpointMissing."""

        def headers() -> Mapping[str, str]:
            return self._headers(endpoint, turn.attribution, turn.active_extensions)

        return self._connect(endpoint, headers, turn.is_cancelled)

    def _connect(
        self,
        endpoint: Endpoint,
        headers: Callable[[], Mapping[str, str]],
        is_unwanted: Callable[[], bool],
    ) -> AgentConnection:
        return AgentConnection(
            self._exchanges,
            binding_of(endpoint),
            headers,
            is_unwanted=is_unwanted,
            stream_seconds=self._settings.a2a_turn_seconds,
        )

    def _headers(
        self, endpoint: Endpoint, attribution: Attribution | None, extensions: Collection[str]
    ) -> Mapping[str, str]:
        # Mint a token for each request, because a token is valid for a few minutes and a turn may run for longer.
        token = mint_request_token(self._keys, self._settings, endpoint.deployment_id)
        headers = {
            **endpoint.credential_headers(self._encryption),
            "A2A-Version": VERSION,
            "Authorization": f"Bearer {token}",
        }
        if attribution is not None:
            minted = mint_usage_attribution(self._keys, self._settings, attribution)
            headers["Service-Usage-Attribution"] = minted.value
        if extensions:
            headers["A2A-Extensions"] = ",".join(sorted(extensions))
        return headers


def binding_of(endpoint: Endpoint) -> AgentBinding:
    """Return the binding of an endpoint. Raises EndpointMissing if the agent's card has not been read yet."""
    if endpoint.interface_url is None:
        raise EndpointMissing
    if endpoint.binding is Binding.JSONRPC:
        return JsonRpc(endpoint.interface_url, endpoint.tenant)
    return HttpJson(endpoint.interface_url, endpoint.tenant)
