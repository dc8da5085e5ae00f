"""The retry schedule of messages: the backoff that Standard Webhooks recommends, three days in total.

Each wait is changed at random by up to 10 %, so that messages that failed together are not retried together.
"""

WAITS_SECONDS = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
MAX_ATTEMPTS = len(WAITS_SECONDS) + 1
SPREAD = 0.1


def wait_seconds(attempts: int, retry_after_seconds: int | None) -> int:
    """Return the seconds to wait after this many failed attempts, but at least `retry_after_seconds`."""
    return max(WAITS_SECONDS[min(attempts, len(WAITS_SECONDS)) - 1], retry_after_seconds or 0)
