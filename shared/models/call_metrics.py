"""Count settled calls by provider: how they ended, their tokens, what they cost. Never by organization or model."""

from functools import cache

from prometheus_client import Counter

from shared.credits.amounts import MICRO
from shared.credits.settlement import Outcome, Settlement
from shared.observability.telemetry import MODEL_CALLS, MODEL_CREDITS, MODEL_TOKENS

NONE = "none"
"""The provider of a call that reached none."""


def count_settled(outcome: Outcome, settled: Settlement) -> None:
    """Count one call that was charged."""
    provider = outcome.provider or NONE
    _calls(provider, outcome.status.value).inc()
    if outcome.counts is not None:
        prompt, completion, charged = _amounts(provider)
        prompt.inc(outcome.counts.prompt_tokens)
        completion.inc(outcome.counts.completion_tokens)
        charged.inc(settled.cost / MICRO)


@cache
def _calls(provider: str, status: str) -> Counter:
    """Find the series; there are as many as operators name providers."""
    return MODEL_CALLS.labels(provider, status)


@cache
def _amounts(provider: str) -> tuple[Counter, Counter, Counter]:
    return (
        MODEL_TOKENS.labels(provider, "prompt"),
        MODEL_TOKENS.labels(provider, "completion"),
        MODEL_CREDITS.labels(provider),
    )
