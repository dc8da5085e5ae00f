"""The dialects (API formats) of clients and upstreams, and the translations between dialects. Without I/O.

`parse_chat`, `parse_responses` and `parse_messages` validate a request. `upstream_body` translates it to an upstream's
dialect. `Translator` turns the upstream's events into deltas, or one body, of the client's dialect, and `frame_writer`
serializes deltas as server-sent events.
"""

from shared.credits.prices import TokenCounts
from shared.models.dialects.chat_requests import parse_chat
from shared.models.dialects.deltas import (
    DONE,
    Delta,
    FrameWriter,
    end_of_stream,
    frame_writer,
    keepalive_comment,
)
from shared.models.dialects.failures import Failure
from shared.models.dialects.messages_requests import parse_messages, parse_prompt
from shared.models.dialects.requests import UPSTREAM_DIALECTS, Dialect, ParsedRequest, describe
from shared.models.dialects.responses_requests import parse_responses
from shared.models.dialects.token_counts import estimate_completion_tokens, estimate_prompt_tokens
from shared.models.dialects.translator import Translator, upstream_body

__all__ = [
    "DONE",
    "UPSTREAM_DIALECTS",
    "Delta",
    "Dialect",
    "Failure",
    "FrameWriter",
    "ParsedRequest",
    "TokenCounts",
    "Translator",
    "describe",
    "end_of_stream",
    "estimate_completion_tokens",
    "estimate_prompt_tokens",
    "frame_writer",
    "keepalive_comment",
    "parse_chat",
    "parse_messages",
    "parse_prompt",
    "parse_responses",
    "upstream_body",
]
