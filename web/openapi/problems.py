"""Every error of the service: its code, status, meaning and remedy, and the operations that return it."""

import inspect
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from shared.errors import DomainError, Kind
from web.error_responses.error_formats import Dialects, reason_phrase, title
from web.error_responses.status_codes import INTERNAL_ERROR, STATUSES
from web.framework.routes import Route
from web.openapi.errors import dialect_code, errors_by_status
from web.openapi.remedies import REMEDIES, REMEDIES_BY_KIND

# 402, 409 and 507 are left out: a retry succeeds only after something else has changed.
_RETRYABLE = frozenset({408, 429, 502, 503, 504})
# A path whose errors are problems. Examples of an error that no operation declares use this path.
_PROBLEM_PATH = "/files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An error, with the data that its page shows."""

    code: str
    status: int
    meaning: str
    remedy: str

    @property
    def title(self) -> str:
        """The title of the problem, made from its code."""
        return title(self.code)

    @property
    def is_retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in _RETRYABLE


_WITHOUT_CLASS = (
    ("not_found", Kind.NOT_FOUND, "No resource exists at this address."),
    (
        "invalid_api_key",
        Kind.UNAUTHENTICATED,
        "The API key or token is missing, malformed, unknown, or revoked.",
    ),
    (
        "rate_limit_exceeded",
        Kind.LIMITED,
        "There were too many requests. Wait for the seconds in `Retry-After`.",
    ),
    (
        "temporarily_unavailable",
        Kind.UNAVAILABLE,
        "The service is unavailable. Wait for the seconds in `Retry-After`.",
    ),
)
"""The codes of unknown paths, and codes that only a dialect uses."""
_WITHOUT_KIND = (
    (
        "method_not_allowed",
        405,
        "This address does not support the method. `Allow` lists the supported ones.",
    ),
    ("internal_error", 500, INTERNAL_ERROR),
    ("server_error", 500, INTERNAL_ERROR),
)


@cache
def list_problems() -> Mapping[str, Problem]:
    """Return every problem by its code.

    The first result is cached, so call this function only after all error classes are imported.
    """
    found: dict[str, Problem] = {}
    for code, status, meaning, remedy in _all():
        # Error classes come first, so that the texts for codes without a class do not replace the texts of
        # classes.
        found.setdefault(code, Problem(code=code, status=status, meaning=meaning, remedy=remedy))
    return dict(sorted(found.items()))


def find_problem(code: str | None) -> Problem | None:
    """Return the problem of a code, ignoring case. Return None for a code without a page."""
    return list_problems().get((code or "").lower())


def by_status(problems: Iterable[Problem]) -> Sequence[tuple[int, str, Sequence[Problem]]]:
    """Return problems grouped by status. Each group has the number and the name of the status."""
    grouped: dict[int, list[Problem]] = defaultdict(list)
    for problem in problems:
        grouped[problem.status].append(problem)
    return [(status, reason_phrase(status), grouped[status]) for status in sorted(grouped)]


def operations_by_code(routes: Iterable[Route]) -> Mapping[str, Sequence[Route]]:
    """Return the operations that return each error.

    The keys are this service's code and the code of the operation's dialect.
    """
    found: dict[str, list[Route]] = defaultdict(list)
    for route in routes:
        # Skip hidden routes: pages of the console are not operations of the API.
        for code in () if route.hidden else _codes(route):
            found[code].append(route)
    return found


def samples(problem: Problem, routes: Iterable[Route], base_url: str) -> Sequence[tuple[str, str]]:
    """Return one example response for each dialect of the given operations."""
    dialects = Dialects(base_url=base_url)
    written: dict[str, str] = {}
    for path in [route.path for route in routes] or [_PROBLEM_PATH]:
        answer = dialects.write(path, problem.status, problem.code, problem.meaning, request_id="…")
        if (name := _dialect(answer.body)) not in written:
            head = (
                f"HTTP/1.1 {answer.status} {reason_phrase(answer.status)}\nContent-Type: {answer.media_type}"
            )
            written[name] = f"{head}\n\n{json.dumps(answer.body, indent=2, ensure_ascii=False)}"
    return list(written.items())


def _dialect(body: Mapping[str, object]) -> str:
    error = body.get("error")
    if isinstance(error, Mapping):
        if body.get("type") == "error":
            return "Anthropic"
        return "A2A" if "details" in error else "OpenAI"
    return "Problem (RFC 9457)" if error is None else "OAuth"


def _codes(route: Route) -> set[str]:
    answered = [(status, code) for status, codes in errors_by_status(route).items() for code in codes]
    return {code for _, code in answered} | {dialect_code(route.path, *at).lower() for at in answered}


def _all() -> Iterator[tuple[str, int, str, str]]:
    for error in _subclasses(DomainError):
        code = error.__dict__.get("code")
        # Skip a base class whose subclass has the same code: the subclass describes the error more exactly.
        if code and all(at.__dict__.get("code") != code for at in error.__subclasses__()):
            meaning = inspect.cleandoc(error.__doc__ or "").split("\n\n")[0].replace("\n", " ")
            yield code, STATUSES[error.kind], meaning, REMEDIES.get(code, REMEDIES_BY_KIND[error.kind])
    for code, kind, meaning in _WITHOUT_CLASS:
        yield code, STATUSES[kind], meaning, REMEDIES.get(code, REMEDIES_BY_KIND[kind])
    for code, status, meaning in _WITHOUT_KIND:
        yield code, status, meaning, REMEDIES.get(code, REMEDIES["internal_error"])


def _subclasses(error: type[DomainError]) -> Iterator[type[DomainError]]:
    for subclass in error.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)
