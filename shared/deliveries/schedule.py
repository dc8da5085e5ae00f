"""The retry schedule of messages: the backoff that Standard Webhooks recommends, three days in all.

Each wait is spread by a tenth, so that what failed together does not come back together.
"""

WAITS_SECONDS = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
MAX_ATTEMPTS = len(WAITS_SECONDS) + 1
SPREAD = 0.1


def wait_seconds(attempts: int, retry_after_seconds: int | None) -> int:
    """Give the wait after so many failed attempts; never shorter than the destination asked for."""
    return max(WAITS_SECONDS[min(attempts, len(WAITS_SECONDS)) - 1], retry_after_seconds or 0)
