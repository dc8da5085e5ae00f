"""Choose the media type of an answer by the request's `Accept` (RFC 9110, 12.5.1).

Quality values, wildcards and case count; parameters other than `q` do not. Of types that are wanted equally, one that
is named comes before one that a wildcard takes in, and then the first of those offered. Nothing is refused with 406:
where nothing that is offered is wanted, the first is the answer.
"""

from collections.abc import Sequence

from flask import Request
from werkzeug.datastructures import MIMEAccept

JSON = "application/json"
EVENT_STREAM = "text/event-stream"
CSV = "text/csv"


def negotiate(http: Request, offered: Sequence[str]) -> str:
    """Choose the type that the request prefers of those offered, the default first."""
    wanted = MIMEAccept(
        (media_type.partition(";")[0].strip(), quality) for media_type, quality in http.accept_mimetypes
    )
    return wanted.best_match(offered, offered[0])


def wants_events(http: Request) -> bool:
    """Tell whether the request prefers a stream of events to JSON."""
    return negotiate(http, (JSON, EVENT_STREAM)) == EVENT_STREAM
