"""Single requests that write and take no key: with the answer lost, and with another client that asks the same.

That a repetition does no harm is shown by comparing what it leaves with what two requests leave that were both
answered. What is left is how many rows each table has more or fewer, the audit's among them.
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
"""What each table holds, besides when something was last touched."""


@dataclass(frozen=True, kw_only=True)
class Write:
    """A request that writes: `prepare` makes what it acts on, and gives what asks it, as often as it is called.

    `late` is the answer to who comes second at once, where it is another than later.
    """

    name: str
    prepare: Callable[[World], Ask]
    late: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What two requests were answered, and how many rows they left."""

    statuses: tuple[int, ...]
    rows: Counter[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """Two requests that were both answered; `changed` are the tables that the second left otherwise than the first."""

    outcome: Outcome
    first: Journal
    changed: frozenset[str]


def twice(world: World, write: Write) -> Repetition:
    """Ask twice, and hear both answers."""
    ask, before = write.prepare(world), count_rows(world)
    with watched() as journal:
        first = ask()
    between = _contents(world)
    second = ask()
    changed = {name for name, content in _contents(world).items() if content != between[name]}
    outcome = Outcome((first.status_code, second.status_code), _delta(world, before))
    return Repetition(outcome=outcome, first=journal, changed=frozenset(changed))


def repeated(world: World, write: Write, lost: Commit) -> Outcome:
    """Ask, do not hear of this commit, and ask again."""
    ask, before = write.prepare(world), count_rows(world)
    with watched(lost) as journal:
        unconfirmed = ask()
    assert journal.is_lost
    again = _ask_until_answered(ask)
    return Outcome((unconfirmed.status_code, again.status_code), _delta(world, before))


def raced(world: World, write: Write) -> Outcome:
    """Ask, while another client asks for the same before the first commit."""
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
    """Count how many rows each table has more than before, or fewer."""
    after = count_rows(world)
    return Counter({name: count - before[name] for name, count in after.items() if count != before[name]})


def _ask_until_answered(ask: Ask) -> TestResponse:
    """Ask again while nobody could say what came of it."""
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
