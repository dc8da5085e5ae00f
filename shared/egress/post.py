"""Post a small body to a URL that another party chose, with the same protection as a fetch.

The result has only the status and `Retry-After`: the response's body is not read, and a redirect is not followed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from shared.egress.connections import CONNECT_SECONDS
from shared.egress.deadlines import Deadline
from shared.egress.exchanges import Request, exchange
from shared.egress.observation import observed
from shared.egress.policy import EgressPolicy
from shared.egress.urls import check_headers, parse_url


@dataclass(frozen=True, slots=True, kw_only=True)
class PostResult:
    """The status of a response, and the wait that its `Retry-After` asks for."""

    status: int
    retry_after_seconds: int | None


def post(
    url: str,
    *,
    body: bytes,
    headers: Mapping[str, str],
    policy: EgressPolicy,
    deadline_seconds: float,
    connect_seconds: float = CONNECT_SECONDS,
) -> PostResult:
    """Post over https and return the response's status. Raises the errors of `errors.py`."""
    check_headers(headers)
    target = parse_url(url, policy, with_secrets=True)
    request = Request(method="POST", target=target, headers=headers, body=body)
    with (
        observed("post", target.host),
        Deadline(deadline_seconds) as deadline,
        exchange(
            request,
            policy=policy,
            deadline=deadline,
            idle_seconds=deadline_seconds,
            connect_seconds=connect_seconds,
        ) as reply,
    ):
        return PostResult(status=reply.status, retry_after_seconds=reply.retry_after_seconds)
