"""What is asked of an upstream: the client's body, in the upstream's dialect, always streamed, always with usage.

One path serves all replies: also a client that waits for the whole is served from a stream, so that a provider that
stalls is noticed and one that breaks has told what it consumed.
"""

from shared.models.dialects.chat_as_responses import chat_as_responses
from shared.models.dialects.requests import Dialect, Json, ParsedRequest
from shared.models.dialects.responses_as_chat import responses_as_chat


def upstream_body(
    parsed: ParsedRequest,
    upstream_dialect: Dialect,
    upstream_model: str,
    *,
    limit_field: str = "max_completion_tokens",
) -> Json:
    """Write the body for one upstream; `limit_field` is how a chat upstream calls the output limit (or `max_tokens`).

    Raises InvalidRequest where the request needs something that the other dialect cannot say.
    """
    body = {name: value for name, value in parsed.body.items() if value is not None}
    if upstream_dialect is Dialect.RESPONSES:
        body = chat_as_responses(body) if parsed.dialect is Dialect.CHAT else body
        return {**body, "model": upstream_model, "stream": True, "store": False}
    body = responses_as_chat(body, limit_field=limit_field) if parsed.dialect is Dialect.RESPONSES else body
    body.pop("store", None)
    options = {**(body.get("stream_options") or {}), "include_usage": True}
    return {**body, "model": upstream_model, "stream": True, "stream_options": options}
