"""The Response object: every key of the schema, with the request's settings or their defaults, and our id and model.

Open Responses requires all keys in every lifecycle event. Official clients in strict mode require a few more keys.
"""

from typing import Any

from shared.credits.prices import TokenCounts
from shared.models.dialects.requests import Json, ParsedRequest
from shared.models.dialects.token_counts import responses_usage

_ECHOED = (
    "instructions", "max_output_tokens", "max_tool_calls", "safety_identifier", "prompt_cache_key", "user",
)  # fmt: skip
_DEFAULTS: Json = {
    "tools": [],
    "tool_choice": "auto",
    "truncation": "disabled",
    "parallel_tool_calls": True,
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
    "temperature": 1.0,
    "metadata": {},
    "service_tier": "default",
}
_SERVICE_TIERS = frozenset({"auto", "default", "flex", "scale", "priority", "fast", "ultrafast"})
_OURS = frozenset(
    {"id", "object", "created_at", "model", "store", "background", "previous_response_id", "usage"}
)


def new_response(parsed: ParsedRequest, *, reply_id: str, model_id: str, created: int) -> Json:
    """Return the Response before any output."""
    body = parsed.body
    response: Json = {
        "id": reply_id,
        "object": "response",
        "created_at": created,
        "completed_at": None,
        "status": "in_progress",
        "incomplete_details": None,
        "error": None,
        "model": model_id,
        "previous_response_id": None,
        "output": [],
        "usage": None,
        "store": False,
        "background": False,
        **{name: body.get(name) for name in _ECHOED},
        **{name: default if body.get(name) is None else body[name] for name, default in _DEFAULTS.items()},
        "text": _text(body.get("text")),
        "reasoning": _reasoning(body.get("reasoning")),
    }
    if response["service_tier"] not in _SERVICE_TIERS or response["service_tier"] == "auto":
        # Replace `auto`, which is valid in a request only: a response names the tier that served the request.
        response["service_tier"] = "default"
    response["tools"] = [_tool(tool) for tool in response["tools"]]
    return response


def adopt(response: Json, upstream: Json) -> Json:
    """Return the Response with the values of the upstream's response, except for the keys that this service sets."""
    adopted = {name: value for name, value in upstream.items() if value is not None and name not in _OURS}
    if adopted.get("service_tier") not in _SERVICE_TIERS:
        adopted.pop("service_tier", None)
    return {**response, **adopted}


def end_response(
    response: Json,
    *,
    status: str,
    output: list[Json],
    usage: TokenCounts | None,
    completed_at: int | None = None,
) -> Json:
    """Return the Response at its end, without `incomplete_details` and `error`, which the caller adds."""
    return {
        **response,
        "status": status,
        "output": output,
        "usage": None if usage is None else responses_usage(usage),
        "completed_at": completed_at if status == "completed" else None,
    }


def _text(given: Any) -> Json:
    text = {**(given or {})}
    form = text.get("format") or {"type": "text"}
    if form.get("type") == "json_schema":
        form = {"description": None, "strict": False, **form}
    return {**text, "format": form}


def _reasoning(given: Any) -> Json | None:
    return None if given is None else {"effort": None, "summary": None, **given}


def _tool(tool: Json) -> Json:
    if tool.get("type") != "function":
        return tool
    return {"description": None, "strict": True, "parameters": None, **tool}
