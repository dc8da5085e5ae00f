"""The front with its patience shortened, so that journeys need not wait as long as clients may.

For gunicorn in the place of `web.wsgi`; nothing else about the front is different. With PATIENCE=whole nothing is, and
with PATIENCE=endless only calls wait for a worker as long as a slow machine may take to bring all of them.
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

# After the constants, so that nothing is served before they hold.
from web.wsgi import application

__all__ = ["application"]
