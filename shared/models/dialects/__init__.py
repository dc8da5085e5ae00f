"""The two dialects in which clients and upstreams talk about models, and the four ways between them.

Pure: no clock but the one given, no socket, no database. A request comes in as parsed JSON and is validated
(`parse_chat`, `parse_responses`), said again in an upstream's dialect (`upstream_body`), and the upstream's events
become deltas, or one body, of the client's dialect (`Translator`); `frame_writer` writes deltas as frames.
"""

from shared.models.dialects.chat_requests import parse_chat
from shared.models.dialects.deltas import DONE, Delta, FrameWriter, frame_writer
from shared.models.dialects.failures import Failure
from shared.models.dialects.requests import Dialect, ParsedRequest, describe
from shared.models.dialects.responses_requests import parse_responses
from shared.models.dialects.token_counts import (
    TokenCounts,
    estimate_completion_tokens,
    estimate_prompt_tokens,
)
from shared.models.dialects.translator import Translator
from shared.models.dialects.upstream_bodies import upstream_body

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
