"""The web process with shortened timeouts, so that journeys need not wait as long as real clients may.

gunicorn loads it instead of `web.wsgi`; only the timeouts differ. With PATIENCE=whole they do not differ. With
PATIENCE=endless only the timeout of calls without a worker is longer, for slow machines.
"""

import os

from shared.models import reply_timeouts
from web.models import responses

if os.environ.get("PATIENCE") == "endless":
    reply_timeouts.QUEUE_SECONDS = 3600.0
elif os.environ.get("PATIENCE") != "whole":
    reply_timeouts.PING_SECONDS = 0.5
    reply_timeouts.QUEUE_SECONDS = 3.0
    responses.COMMENT_AFTER_SECONDS = 1.0

# Import after the constants are set, so that no request sees the old ones.
from web.wsgi import application

__all__ = ["application"]
