"""Single requests that write without an idempotency key: with a lost response, and with a simultaneous equal request.

A repetition is harmless if it has the same effect as two requests whose responses both arrived. The effect is the
number of rows that each table gained or lost, including the audit.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from werkzeug.test import TestResponse

from tests.proof.commits import Commit, Journal, before_commits, watched
from tests.proof.flows import ATTEMPTS
from tests.proof.interleaving import VISITOR, Visit
from tests.proof.world import World

Ask = Callable[[], TestResponse]
AUDIT = "audit_events"
_TABLES = """
SELECT string_agg(format('SELECT %%L, count(*) FROM %%I', relname, relname), ' UNION ALL ')
FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""
_CONTENTS = """
SELECT string_agg(format('SELECT %%L, sum(hashtextextended((to_jsonb(t) - ''{changed_at,updated_at,last_used_at}'''
    '::text[])::text, 0)) FROM %%I t', relname, relname), ' UNION ALL ')
FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""
"""The content of each table, without the columns that record when a row was last used."""


@dataclass(frozen=True, kw_only=True)
class Write:
    """A request that writes. `prepare` creates what it acts on, and returns a function that sends the request.

    `late` is the status of the second of two simultaneous requests, if it differs from that of a later repetition.
    """

    name: str
    prepare: Callable[[World], Ask]
    late: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The statuses of two requests, and the rows that they added or removed."""

    statuses: tuple[int, ...]
    rows: Counter[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """Two requests whose responses both arrived; `changed` are the tables that the second one changed."""

    outcome: Outcome
    first: Journal
    changed: frozenset[str]


def twice(world: World, write: Write) -> Repetition:
    """Send the request twice, and receive both responses."""
    ask, before = write.prepare(world), count_rows(world)
    with watched() as journal:
        first = ask()
    between = _contents(world)
    second = ask()
    changed = {name for name, content in _contents(world).items() if content != between[name]}
    outcome = Outcome((first.status_code, second.status_code), _delta(world, before))
    return Repetition(outcome=outcome, first=journal, changed=frozenset(changed))


def repeated(world: World, write: Write, lost: Commit) -> Outcome:
    """Send the request, lose the response of this commit, and send it again."""
    ask, before = write.prepare(world), count_rows(world)
    with watched(lost) as journal:
        unconfirmed = ask()
    assert journal.is_lost
    again = _ask_until_answered(ask)
    return Outcome((unconfirmed.status_code, again.status_code), _delta(world, before))


def raced(world: World, write: Write) -> Outcome:
    """Send the request, while another client sends the same before the first commit."""
    ask, before = write.prepare(world), count_rows(world)
    with _meanwhile(world, ask) as others:
        mine = _ask_until_answered(ask)
    (theirs,) = others
    return Outcome((mine.status_code, theirs.status_code), _delta(world, before))


def count_rows(world: World) -> Counter[str]:
    """Count the rows of every table."""
    return Counter(dict(world.sql(world.once(_counting))))


def _contents(world: World) -> Mapping[str, object]:
    return dict(world.sql(world.once(_adding_up)))


def _counting(world: World) -> str:
    return str(world.sql(_TABLES)[0][0])


def _adding_up(world: World) -> str:
    return str(world.sql(_CONTENTS)[0][0])


def _delta(world: World, before: Counter[str]) -> Counter[str]:
    """Return by how many rows each table grew or shrank."""
    after = count_rows(world)
    return Counter({name: count - before[name] for name, count in after.items() if count != before[name]})


def _ask_until_answered(ask: Ask) -> TestResponse:
    """Repeat a request until its status is below 500."""
    for _ in range(ATTEMPTS):
        answer = ask()
        if answer.status_code < 500:
            return answer
    raise AssertionError(f"it was never answered: {answer.text}")


@contextmanager
def _meanwhile(world: World, ask: Ask) -> Iterator[list[TestResponse]]:
    answers: list[TestResponse] = []
    visit = Visit(world, lambda: answers.append(_ask_until_answered(ask)))

    def begin() -> None:
        if not threading.current_thread().name.startswith(VISITOR):
            visit.begin()

    with before_commits(begin):
        yield answers
    assert visit.end(), "the request commits something"
