"""Administrative operations that write: with the answer lost, and with another client that does the same meanwhile.

What each needs, and who may ask for it, is the table of `tests/web/identity/test_administration_matrix.py`. None takes
a key: that a repetition does no harm is shown by comparing what it leaves with what two requests leave that were both
answered. What is left is how many rows each table has more or fewer, the audit's among them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sqlalchemy import text
from werkzeug.test import TestResponse

from shared.identity.roles import Role
from tests.proof.commits import Commit, Journal, before_commits, watched
from tests.proof.flows import ATTEMPTS
from tests.proof.interleaving import VISITOR, Visit
from tests.proof.world import World
from tests.web.identity.test_administration_matrix import OPERATIONS, TABLE, USERS, Attempt
from tests.web.identity.test_administration_matrix import World as Cast

WRITES = tuple(name for name in TABLE if OPERATIONS[name].method != "GET" and TABLE[name].allowed)
OF_ORGANIZATIONS = frozenset(
    {
        *("put_organization_endpoint", "remove_organization_endpoint", "replay_organization_notifications"),
        *(
            "create_budget",
            "top_up_credits",
            "adjust_credits",
            "set_credit_policy",
            "suspend_spending",
            "resume_spending",
        ),
    }
)
"""Operations on what an organization has one of; each attempt is on an organization of its own."""
_KEYS_ARE_KNOWN = text("UPDATE signing_keys SET created_at = created_at - interval '1 day'")
_NEXT_KEY = text("SELECT kid FROM signing_keys WHERE state = 'next' LIMIT 1")


def _rotation(cast: Cast) -> Attempt:
    """The next keys are old enough for everybody to know them."""
    with cast.front.services.database.transaction() as session:
        session.execute(_KEYS_ARE_KNOWN)
    return Attempt(path="signing-keys/rotate")


def _next_key(cast: Cast) -> Attempt:
    with cast.front.services.database.transaction() as session:
        return Attempt(path=f"signing-keys/{session.execute(_NEXT_KEY).scalar_one()}/revoke")


def _dead_notifications(cast: Cast) -> Attempt:
    path = TABLE["resend_notification"].attempt(cast).path
    return Attempt(path=f"{path.partition('/notifications/')[0]}/notifications/resend-dead")


OWN: dict[str, Callable[[Cast], Attempt]] = {
    "rotate_signing_keys": _rotation,
    "revoke_signing_key": _next_key,
    "resend_dead_notifications": _dead_notifications,
}
"""What the table has no attempt for that changes something."""
UNDOING = {"enable": "disable", "resume": "suspend"}
"""Acts that have something to do only after another."""
_TABLES = """
SELECT string_agg(format('SELECT %%L, count(*) FROM %%I', relname, relname), ' UNION ALL ')
FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What two requests were answered, and how many rows they left."""

    statuses: tuple[int, ...]
    rows: Counter[str]


def make_cast(world: World) -> Cast:
    """Make everybody whom the table of operations knows."""
    make = world.front.identity
    organization_id = make.organization().id
    deployment, principal = make.deployment(organization_id), make.principal(organization_id)
    distribution = make.distribution(
        organization_id, principal_id=principal.id, deployment_id=deployment.deployment.id
    )
    return Cast(
        front=world.front,
        organization_id=organization_id,
        operator=make.operator(),
        owner=make.person(organization_id, Role.WORKSPACE_OWNER),
        admin=make.person(organization_id, Role.WORKSPACE_ADMIN),
        member=make.person(organization_id),
        stranger=make.person(make.organization("Elsewhere").id, Role.WORKSPACE_OWNER),
        deployment=deployment,
        principal_id=principal.id,
        distribution_token=distribution.token.value,
        described={},
    )


def prepare(cast: Cast, name: str) -> Attempt:
    """Make what an operation acts on, so that there is something to do."""
    if name in OF_ORGANIZATIONS:
        cast = replace(cast, organization_id=cast.front.identity.organization().id)
    attempt = OWN.get(name, TABLE[name].attempt)(cast)
    verb = attempt.path.rpartition("/")[2]
    if verb in UNDOING:
        before = attempt.path.removesuffix(verb) + UNDOING[verb]
        assert cast.front.post(f"/admin/{before}", cast.operator.authorization).status_code == 200
    return attempt


def ask(cast: Cast, name: str, attempt: Attempt) -> TestResponse:
    """Ask for an operation as somebody who may."""
    by = next(user for user in USERS if user in TABLE[name].allowed)
    sent = {} if attempt.body is None else {"json": attempt.body}
    authorization = getattr(cast, by).authorization
    client = cast.front.app.test_client()
    headers = {"Authorization": authorization}
    method = OPERATIONS[name].method
    return client.open(f"/admin/{attempt.path}", method=method, headers=headers, buffered=True, **sent)


def ask_until_answered(cast: Cast, name: str, attempt: Attempt) -> TestResponse:
    """Ask again while nobody could say what came of it."""
    for _ in range(ATTEMPTS):
        answer = ask(cast, name, attempt)
        if answer.status_code < 500:
            return answer
    raise AssertionError(f"{name} was never answered: {answer.text}")


def count_rows(world: World) -> Counter[str]:
    """Count the rows of every table."""
    return Counter(dict(world.sql(world.once(_counting))))


def _counting(world: World) -> str:
    return str(world.sql(_TABLES)[0][0])


def _delta(world: World, before: Counter[str]) -> Counter[str]:
    """Count how many rows each table has more than before, or fewer."""
    after = count_rows(world)
    return Counter({name: count - before[name] for name, count in after.items() if count != before[name]})


def twice(world: World, cast: Cast, name: str) -> tuple[Outcome, Journal]:
    """Ask twice, and hear both answers."""
    attempt, before = prepare(cast, name), count_rows(world)
    with watched() as journal:
        first = ask(cast, name, attempt)
    second = ask(cast, name, attempt)
    return Outcome((first.status_code, second.status_code), _delta(world, before)), journal


def repeated(world: World, cast: Cast, name: str, lost: Commit) -> Outcome:
    """Ask, do not hear of this commit, and ask again."""
    attempt, before = prepare(cast, name), count_rows(world)
    with watched(lost) as journal:
        unheard = ask(cast, name, attempt)
    assert journal.is_lost
    again = ask_until_answered(cast, name, attempt)
    return Outcome((unheard.status_code, again.status_code), _delta(world, before))


def raced(world: World, cast: Cast, name: str) -> Outcome:
    """Ask, while another client asks for the same before the first commit."""
    attempt, before = prepare(cast, name), count_rows(world)
    with _meanwhile(world, cast, name, attempt) as others:
        mine = ask_until_answered(cast, name, attempt)
    (theirs,) = others
    return Outcome((mine.status_code, theirs.status_code), _delta(world, before))


@contextmanager
def _meanwhile(world: World, cast: Cast, name: str, attempt: Attempt) -> Iterator[list[TestResponse]]:
    answers: list[TestResponse] = []
    visit = Visit(world, lambda: answers.append(ask_until_answered(cast, name, attempt)))

    def begin() -> None:
        if not threading.current_thread().name.startswith(VISITOR):
            visit.begin()

    with before_commits(begin):
        yield answers
    assert visit.end(), "the operation commits something"
