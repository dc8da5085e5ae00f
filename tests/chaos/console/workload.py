"""The workload of the console: it compares what people know with sessions, links and keys."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.directory.memberships import add_member
from tests.chaos.console.people import Visitor
from tests.chaos.installation import Installation
from tests.chaos.workload import Person, Workload

VISITORS = 4
SETTINGS = {"FAILED_LOGINS_PER_MINUTE": "0"}
"""All ask from one address, and use links and sessions that have ended all the time."""
GIVEN_KEYS = ("test",)


class Console(Workload):
    """People who sign in, submit forms, and sign out or are signed out."""

    workers = {"background": 1}  # noqa: RUF012
    waiting = ()

    def __init__(self, installation: Installation, closing: ExitStack) -> None:
        del closing
        self._installation = installation
        self._visitors: Sequence[Visitor] = ()
        installation.stack.environment.update(SETTINGS)

    def begin(self) -> Sequence[Person]:
        self._visitors = [self._make_visitor(number) for number in range(VISITORS)]
        return self._visitors

    def compare(self) -> Iterator[str]:
        for visitor in self._visitors:
            yield from visitor.records.compare(self._installation.stack, str(visitor.user_id), GIVEN_KEYS)

    def _make_visitor(self, number: int) -> Visitor:
        """Create an owner of one organization who is a member of another."""
        at = self._installation
        first, second = (
            at.identity.organization(f"First {number}"),
            at.identity.organization(f"Second {number}"),
        )
        person = at.identity.person(first.id, Role.WORKSPACE_OWNER)
        with at.identity.database.transaction() as session:
            add_member(
                session,
                actor=OPERATOR,
                organization_id=second.id,
                email=person.email,
                role=Role.WORKSPACE_OWNER,
            )
        return Visitor(at, number, person, (first, second))
