"""The two dialects in which clients and upstreams talk about models, and the four ways between them; without I/O.

A request is validated (`parse_chat`, `parse_responses`) and said again in an upstream's dialect (`upstream_body`);
its events become deltas, or one body, of the client's dialect (`Translator`), which `frame_writer` writes as frames.
"""

from shared.credits.prices import TokenCounts
from shared.models.dialects.chat_requests import parse_chat
from shared.models.dialects.deltas import DONE, Delta, FrameWriter, frame_writer
from shared.models.dialects.failures import Failure
from shared.models.dialects.requests import Dialect, ParsedRequest, describe
from shared.models.dialects.responses_requests import parse_responses
from shared.models.dialects.token_counts import estimate_completion_tokens, estimate_prompt_tokens
from shared.models.dialects.translator import Translator, upstream_body

__all__ = [
    "DONE",
    "Delta",
    "Dialect",
    "Failure",
    "FrameWriter",
    "ParsedRequest",
    "TokenCounts",
    "Translator",
    "describe",
    "estimate_completion_tokens",
    "estimate_prompt_tokens",
    "frame_writer",
    "parse_chat",
    "parse_responses",
    "upstream_body",
]
