"""Running calls end when their callers are revoked, and no other calls end."""

import threading
from collections.abc import Iterator

import pytest

from shared.db.database import Database
from shared.errors import DomainError, PermissionDenied, ServiceUnavailable
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.callers import Caller
from shared.identity.access.permissions import Permission
from shared.identity.access.roles import Role
from shared.identity.authentication import revocation_watcher
from shared.identity.authentication.revalidation import CallerRevalidator
from shared.identity.authentication.revocation_watcher import RevocationWatcher
from shared.identity.credentials.api_keys import revoke_api_key
from shared.identity.directory.memberships import change_member_role
from shared.identity.directory.organizations import suspend_organization
from shared.identity.errors import InvalidToken, OrganizationSuspended
from tests.support.data.identity import IdentityFactory

TIMEOUT_SECONDS = 60.0


class CountingRevalidator(CallerRevalidator):
    """Counts its revalidations; `is_away` simulates an unavailable database."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.asked = threading.Semaphore(0)
        self.count = 0
        self.is_away = False

    def revalidate(self, caller: Caller) -> Caller:
        self.count += 1
        self.asked.release()
        if self.is_away:
            raise ServiceUnavailable
        return super().revalidate(caller)


@pytest.fixture
def revalidator(database: Database) -> CountingRevalidator:
    return CountingRevalidator(database)


@pytest.fixture
def work(revalidator: CountingRevalidator, monkeypatch: pytest.MonkeyPatch) -> Iterator[RevocationWatcher]:
    monkeypatch.setattr(revocation_watcher, "CHECK_SECONDS", 0.05)
    work = RevocationWatcher(revalidator)
    yield work
    work.close()


def anyone(_: Caller) -> None:
    """Authorize every caller."""


def caller_in(factory: IdentityFactory) -> Caller:
    return factory.actor(factory.person(factory.organization().id, bound=True)).caller


def test_revoked_key_ends_its_calls_and_no_others(
    work: RevocationWatcher, database: Database, factory: IdentityFactory
) -> None:
    revoked, other = caller_in(factory), caller_in(factory)
    woken = [threading.Event() for _ in range(3)]
    calls = [
        work.watch(caller, anyone, event.set)
        for caller, event in zip((revoked, revoked, other), woken, strict=True)
    ]
    with database.transaction() as session:
        revoke_api_key(session, actor=OPERATOR, key_id=revoked.credential_id)
    assert woken[0].wait(TIMEOUT_SECONDS)
    assert woken[1].wait(TIMEOUT_SECONDS)
    assert [type(call.revocation) for call in calls] == [InvalidToken, InvalidToken, type(None)]
    assert not woken[2].is_set()


def test_calls_end_with_their_organization(
    work: RevocationWatcher, database: Database, factory: IdentityFactory
) -> None:
    caller, woken = caller_in(factory), threading.Event()
    call = work.watch(caller, anyone, woken.set)
    assert caller.organization_id is not None
    with database.transaction() as session:
        suspend_organization(session, actor=OPERATOR, organization_id=caller.organization_id)
    assert woken.wait(TIMEOUT_SECONDS)
    assert isinstance(call.revocation, OrganizationSuspended)


def test_call_continues_while_its_resource_cannot_be_read(
    work: RevocationWatcher, factory: IdentityFactory
) -> None:
    outcomes: Iterator[type[DomainError]] = iter((ServiceUnavailable, ServiceUnavailable, PermissionDenied))
    woken = threading.Event()

    def look(_: Caller) -> None:
        raise next(outcomes)

    call = work.watch(caller_in(factory), look, woken.set)
    assert woken.wait(TIMEOUT_SECONDS)
    assert isinstance(call.revocation, PermissionDenied)


def test_lost_permission_ends_only_the_calls_that_need_it(
    work: RevocationWatcher, database: Database, factory: IdentityFactory
) -> None:
    organization_id = factory.organization().id
    caller, woken = (
        factory.actor(factory.person(organization_id, Role.WORKSPACE_ADMIN)).caller,
        threading.Event(),
    )

    def may_delete(at: Caller) -> None:
        if Permission.FILE_DELETE not in at.permissions_on(organization_id=organization_id):
            raise PermissionDenied

    deleting = work.watch(caller, may_delete, woken.set)
    reading = work.watch(caller, anyone, woken.set)
    with database.transaction() as session:
        change_member_role(
            session,
            actor=OPERATOR,
            organization_id=organization_id,
            user_id=caller.executor.id,
            role=Role.MEMBER,
        )
    assert woken.wait(TIMEOUT_SECONDS)
    assert isinstance(deleting.revocation, PermissionDenied)
    assert reading.revocation is None


def test_credential_is_revalidated_once_for_all_its_calls(
    work: RevocationWatcher, revalidator: CountingRevalidator, factory: IdentityFactory
) -> None:
    caller = caller_in(factory)
    for _ in range(50):
        work.watch(caller, anyone, lambda: None)
    before = revalidator.count
    for _ in range(4):
        assert revalidator.asked.acquire(timeout=TIMEOUT_SECONDS)
    assert revalidator.count - before < 50


def test_calls_go_on_while_the_database_is_away(
    work: RevocationWatcher, revalidator: CountingRevalidator, factory: IdentityFactory
) -> None:
    revalidator.is_away = True
    call = work.watch(caller_in(factory), anyone, lambda: None)
    for _ in range(3):
        assert revalidator.asked.acquire(timeout=TIMEOUT_SECONDS)
    assert call.revocation is None


def test_calls_that_have_ended_are_watched_no_longer(
    work: RevocationWatcher, factory: IdentityFactory
) -> None:
    with work.watch(caller_in(factory), anyone, lambda: None):
        assert work.watched == 1
    assert work.watched == 0
