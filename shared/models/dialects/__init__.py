"""The dialects in which clients and upstreams talk about models, and the ways between them; without I/O.

A request is validated (`parse_chat`, `parse_responses`, `parse_messages`) and said again in an upstream's dialect
(`upstream_body`); its events become deltas, or one body, of the client's dialect (`Translator`), which `frame_writer`
writes as frames.
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
