"""What is asked of an upstream: the client's body, in the upstream's dialect, streamed or whole, always with usage.

The upstream is asked for the whole where the client is: a stream of a hundred chunks costs four times the processor.
Some upstreams only stream (`streams_only`); their replies are put together here.
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
    streams_only: bool = False,
) -> Json:
    """Write the body for one upstream, whose field for the output limit is `limit_field` (or `max_tokens`).

    Raises InvalidRequest where the request needs something that the other dialect cannot say.
    """
    is_stream = parsed.is_stream or streams_only
    # Upstreams refuse options of a stream where they are to reply with the whole.
    unsaid = () if is_stream else ("stream_options",)
    body = {name: value for name, value in parsed.body.items() if value is not None and name not in unsaid}
    if upstream_dialect is Dialect.RESPONSES:
        body = chat_as_responses(body) if parsed.dialect is Dialect.CHAT else body
        return {**body, "model": upstream_model, "stream": is_stream, "store": False}
    body = responses_as_chat(body, limit_field=limit_field) if parsed.dialect is Dialect.RESPONSES else body
    body.pop("store", None)
    asked = {**body, "model": upstream_model, "stream": is_stream}
    if is_stream:
        asked["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
    return asked
