"""Say in a sentence what a code of a failure means, and what to do about it, as its page under `/problems` does."""

from web.openapi.problems import Problem, list_problems


def find_reason(code: str | None) -> Problem | None:
    """Find what a code means; None for those that have no page."""
    return list_problems().get((code or "").lower())
