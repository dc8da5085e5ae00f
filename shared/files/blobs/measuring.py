"""Count and time the requests to blob stores, by outcome: one decorator on the verbs of each adapter."""

import time
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Literal, ParamSpec, TypeVar

from prometheus_client import Counter, Histogram

from shared.errors import DomainError
from shared.observability.telemetry import STORE_REQUESTS, STORE_SECONDS

Operation = Literal["seal", "place", "open", "read", "remove", "check"]
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
OK = "ok"


def measured(operation: Operation) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Return a decorator that counts each call by its outcome, and each failure in a result of failures."""

    def measure(verb: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @wraps(verb)
        def timed(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
            started = time.perf_counter()
            try:
                result = verb(*arguments, **named)
            except DomainError as error:
                _requests(operation, error.code).inc()
                raise
            for failure in result.values() if isinstance(result, Mapping) else ():
                _requests(operation, failure.code).inc()
            _requests(operation, OK).inc()
            _seconds(operation).observe(time.perf_counter() - started)
            return result

        return timed

    return measure


@cache
def _requests(operation: Operation, outcome: str) -> Counter:
    return STORE_REQUESTS.labels(operation, outcome)


@cache
def _seconds(operation: Operation) -> Histogram:
    return STORE_SECONDS.labels(operation)
