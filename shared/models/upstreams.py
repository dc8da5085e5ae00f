"""Which of a model's upstreams can be asked what a request asks, in the dialect each of them speaks."""

from __future__ import annotations

from dataclasses import replace

from shared.models.catalog import ModelEntry, Upstream
from shared.models.dialects import ParsedRequest, upstream_body
from shared.models.errors import InvalidRequest


def speaking_for(entry: ModelEntry, request: ParsedRequest) -> ModelEntry:
    """Give the entry with those of its upstreams to which the request can be said.

    Raises InvalidRequest, naming the field, when there is none.
    """
    if all(upstream.dialect is request.dialect for upstream in entry.upstreams):
        return entry
    speakable, refusal = [], InvalidRequest()
    for upstream in entry.upstreams:
        try:
            _require_speakable(request, upstream)
        except InvalidRequest as error:
            refusal = error
        else:
            speakable.append(upstream)
    if not speakable:
        raise refusal
    return replace(entry, upstreams=tuple(speakable))


def _require_speakable(request: ParsedRequest, upstream: Upstream) -> None:
    if upstream.dialect is not request.dialect:
        upstream_body(request, upstream.dialect, upstream.model)
