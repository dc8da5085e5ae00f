"""Choose the media type of a response by the request's `Accept` header (RFC 9110, 12.5.1).

Quality values and wildcards are respected. Parameters other than `q` are ignored. Among equally preferred
types, a type that `Accept` names wins over a type that matches a wildcard. If they are still equal, the first
offered type wins. If no offered type is acceptable, the first offered type is sent: no request is refused
with 406.
"""

from collections.abc import Sequence

from flask import Request
from werkzeug.datastructures import MIMEAccept

JSON = "application/json"
EVENT_STREAM = "text/event-stream"
CSV = "text/csv"


def negotiate(http: Request, offered: Sequence[str]) -> str:
    """Return the offered type that the request prefers. The default is the first offered type."""
    wanted = MIMEAccept(
        (media_type.partition(";")[0].strip(), quality) for media_type, quality in http.accept_mimetypes
    )
    return wanted.best_match(offered, offered[0])


def wants_events(http: Request) -> bool:
    """Return whether the request prefers server-sent events to JSON."""
    return negotiate(http, (JSON, EVENT_STREAM)) == EVENT_STREAM
