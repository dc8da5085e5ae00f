"""Every error that the service answers: its code, status and meaning, what to do about it, and where it is answered."""

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
from web.openapi.remedies import BY_KIND, REMEDIES

_REPEATABLE = frozenset({408, 429, 502, 503, 504})
_PROBLEM_PATH = "/files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An error as its page tells of it."""

    code: str
    status: int
    meaning: str
    remedy: str

    @property
    def title(self) -> str:
        """Its name."""
        return title(self.code)

    @property
    def is_repeatable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in _REPEATABLE


_OF_NO_CLASS = (
    ("not_found", Kind.NOT_FOUND, "Nothing is at this address."),
    (
        "invalid_api_key",
        Kind.UNAUTHENTICATED,
        "The API key or token is missing, malformed, unknown, or revoked.",
    ),
    (
        "rate_limit_exceeded",
        Kind.LIMITED,
        "There were too many requests; `Retry-After` says how long to wait.",
    ),
    (
        "temporarily_unavailable",
        Kind.UNAVAILABLE,
        "The service cannot answer now; `Retry-After` says how long to wait.",
    ),
)
"""The codes of a path that is none, and those that a dialect has for what has another code elsewhere."""
_OF_NO_KIND = (
    ("method_not_allowed", 405, "This address does not take that method; `Allow` lists those it takes."),
    ("internal_error", 500, INTERNAL_ERROR),
    ("server_error", 500, INTERNAL_ERROR),
)


@cache
def list_problems() -> Mapping[str, Problem]:
    """Give every problem by its code; ask once all routes are there, because the first list is kept."""
    found: dict[str, Problem] = {}
    for code, status, meaning, remedy in _all():
        found.setdefault(code, Problem(code=code, status=status, meaning=meaning, remedy=remedy))
    return dict(sorted(found.items()))


def find_problem(code: str | None) -> Problem | None:
    """Return the problem of a code in any case, or None for a code without a page."""
    return list_problems().get((code or "").lower())


def by_status(problems: Iterable[Problem]) -> Sequence[tuple[int, str, Sequence[Problem]]]:
    """Give problems under the number and name of their status."""
    grouped: dict[int, list[Problem]] = defaultdict(list)
    for problem in problems:
        grouped[problem.status].append(problem)
    return [(status, reason_phrase(status), grouped[status]) for status in sorted(grouped)]


def operations_by_code(routes: Iterable[Route]) -> Mapping[str, Sequence[Route]]:
    """Give the operations that answer each error, under its code and under that of their dialect."""
    found: dict[str, list[Route]] = defaultdict(list)
    for route in routes:
        for code in () if route.hidden else _codes(route):
            found[code].append(route)
    return found


def samples(problem: Problem, routes: Iterable[Route], base_url: str) -> Sequence[tuple[str, str]]:
    """Give what clients receive: one answer in each dialect that these operations speak."""
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
        # Of a class that others refine, they say what it means.
        if code and all(at.__dict__.get("code") != code for at in error.__subclasses__()):
            meaning = inspect.cleandoc(error.__doc__ or "").split("\n\n")[0].replace("\n", " ")
            yield code, STATUSES[error.kind], meaning, REMEDIES.get(code, BY_KIND[error.kind])
    for code, kind, meaning in _OF_NO_CLASS:
        yield code, STATUSES[kind], meaning, REMEDIES.get(code, BY_KIND[kind])
    for code, status, meaning in _OF_NO_KIND:
        yield code, status, meaning, REMEDIES.get(code, REMEDIES["internal_error"])


def _subclasses(error: type[DomainError]) -> Iterator[type[DomainError]]:
    for subclass in error.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)
