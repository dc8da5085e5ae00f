"""Fetch URLs that other parties chose, protected against SSRF (`connections.py`).

Credentials are sent only to the hosts for which they are meant. The caller limits the duration of a fetch and the
size of its content.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from shared.egress.deadlines import Deadline, Pace
from shared.egress.errors import EgressError, SourceStatusError, TooManyRedirects
from shared.egress.exchanges import Reply, Request, exchange
from shared.egress.observation import observed
from shared.egress.policy import EgressPolicy
from shared.egress.urls import Target, check_headers, follow, parse_url

OK = 200
REDIRECTS = frozenset({301, 302, 303, 307, 308})
ASK_BYTES = 1 << 20
REFUSAL_BYTES = 16 << 10
Send = Callable[[Request], AbstractContextManager[Reply]]
Follow = Callable[[Target, str], Target]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """The limits of one fetch: size, time, rate and redirects."""

    maximum_bytes: int
    deadline_seconds: float
    """The time limit of the whole fetch: name resolution, connections, redirects and the last byte."""
    idle_seconds: float
    """The longest time between two received bytes."""
    pace: Pace | None = None
    """The minimum rate of the whole fetch; None if there is no minimum."""
    maximum_redirects: int = 3


@dataclass(slots=True, kw_only=True)
class FetchedContent:
    """A response with status 200 and an unread body."""

    status: int
    headers: Mapping[str, str]
    """The response's headers; names are case-insensitive."""
    media_type: str | None
    """The source's media type, without parameters and in lower case."""
    content_length: int | None
    bytes_read: int = 0
    _reply: Reply = field(repr=False)
    _maximum_bytes: int

    def chunks(self) -> Iterator[bytes]:
        """Yield the body. The body can be read only once.

        Raises MediaTooLarge, SourceTruncated, FetchTimedOut and ConnectionFailed. After an error, discard everything
        that was read before.
        """
        for chunk in self._reply.chunks(self._maximum_bytes):
            self.bytes_read += len(chunk)
            yield chunk


@contextmanager
def fetch(
    source_url: str,
    *,
    policy: EgressPolicy,
    limits: FetchLimits,
    headers: Mapping[str, str] | None = None,
    trusted_hosts: Collection[str] = frozenset(),
) -> Iterator[FetchedContent]:
    """GET a URL and follow redirects. Read the body within the context. Raises the errors of `errors.py`.

    `headers` are treated as credentials. They are sent to the first host and, after a redirect, to `trusted_hosts`.
    They are sent only over https, unless the policy allows http. After a redirect to any other host, no later host
    gets the headers.
    """
    secrets = dict(headers or {})
    check_headers(secrets)
    target = parse_url(source_url, policy, with_secrets=bool(secrets))
    with observed("fetch", target.host) as observation, ExitStack() as stack:
        deadline = stack.enter_context(Deadline(limits.deadline_seconds, limits.pace))
        send = partial(exchange, policy=policy, deadline=deadline, idle_seconds=limits.idle_seconds)
        request = Request(method="GET", target=target, headers=secrets)
        reply = _follow_redirects(
            stack,
            send,
            request,
            trusted_hosts,
            partial(follow, policy=policy, with_secrets=False),
            limits.maximum_redirects,
        )
        fetched = _accept(reply, limits)
        try:
            yield fetched
        finally:
            observation.received_bytes = fetched.bytes_read


def ask(
    url: str,
    headers: Mapping[str, str] | None = None,
    *,
    policy: EgressPolicy,
    method: str = "GET",
    body: bytes | None = None,
    maximum_bytes: int = ASK_BYTES,
    deadline_seconds: float = 15.0,
    idle_seconds: float = 10.0,
) -> bytes:
    """Call an API over https and return the body of the response. Redirects are not followed.

    Raises SourceStatusError, which has the API's explanation, if the status is not 200, and the other errors of
    `errors.py`.
    """
    check_headers(headers or {})
    target = parse_url(url, policy, with_secrets=True)
    request = Request(method=method, target=target, headers=headers or {}, body=body)
    with (
        observed("ask", target.host) as observation,
        Deadline(deadline_seconds) as deadline,
        exchange(request, policy=policy, deadline=deadline, idle_seconds=idle_seconds) as reply,
    ):
        if reply.status != OK:
            raise SourceStatusError(
                reply.status, retry_after_seconds=reply.retry_after_seconds, answer=_read_refusal(reply)
            )
        reply.check_encoding()
        answer = b"".join(reply.chunks(maximum_bytes))
        observation.received_bytes = len(answer)
    return answer


def _read_refusal(reply: Reply) -> bytes:
    """Return the body of an error response; empty bytes if the body is too long or incomplete."""
    try:
        return b"".join(reply.chunks(REFUSAL_BYTES))
    except EgressError:
        return b""


def _follow_redirects(
    stack: ExitStack, send: Send, request: Request, trusted_hosts: Collection[str], follow: Follow, limit: int
) -> Reply:
    """Return the first response that is not a redirect. Its exchange stays open until the stack is closed."""
    first = request.target
    for _ in range(limit + 1):
        # Close the exchange of a redirect before the next request. Move the last exchange to the caller's stack.
        with ExitStack() as hop:
            reply = hop.enter_context(send(request))
            location = reply.headers.get("Location")
            if reply.status not in REDIRECTS or location is None:
                stack.enter_context(hop.pop_all())
                return reply
        target = follow(request.target, location)
        # Replace `request` for all later hops, so that headers that were dropped once are never sent again.
        is_trusted = _may_see_secrets(target, first, trusted_hosts)
        request = replace(request, target=target, headers=request.headers if is_trusted else {})
    raise TooManyRedirects


def _may_see_secrets(target: Target, first: Target, trusted_hosts: Collection[str]) -> bool:
    return target.shares_origin(first) or (target.scheme == first.scheme and target.is_trusted(trusted_hosts))


def _accept(reply: Reply, limits: FetchLimits) -> FetchedContent:
    _require_ok(reply)
    return FetchedContent(
        status=reply.status,
        headers=reply.headers,
        media_type=_media_type(reply.headers.get("Content-Type")),
        content_length=reply.require_length_within(limits.maximum_bytes),
        _reply=reply,
        _maximum_bytes=limits.maximum_bytes,
    )


def _require_ok(reply: Reply) -> None:
    if reply.status != OK:
        raise SourceStatusError(reply.status, retry_after_seconds=reply.retry_after_seconds)
    reply.check_encoding()


def _media_type(value: str | None) -> str | None:
    return (value or "").partition(";")[0].strip().lower() or None
