"""Callers are revalidated while their requests run: a revocation ends a request, an expiry does not."""

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import Table, func, text, update
from sqlalchemy.exc import DatabaseError

from shared.config.settings import Settings
from shared.db.database import Database, Session
from shared.errors import DomainError
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.callers import Caller
from shared.identity.access.permissions import Permission
from shared.identity.access.roles import Role
from shared.identity.authentication.revalidation import REQUIRE_AUTHORITY, CallerRevalidator, authority
from shared.identity.console_tables import console_sessions
from shared.identity.credentials.api_keys import revoke_api_key
from shared.identity.directory.memberships import add_member, remove_member
from shared.identity.directory.organizations import suspend_organization
from shared.identity.directory.users import disable_user
from shared.identity.errors import ExpiredToken, InvalidToken, OrganizationSuspended
from shared.identity.sign_in.console_sessions import issue_link, sign_in
from shared.identity.sweeps import sweep_console_sessions
from shared.identity.tables import api_keys, client_credentials, users
from tests.support.data.identity import IdentityFactory, Person
from tests.support.processes.stack import wait_until


@pytest.fixture
def revalidator(database: Database) -> CallerRevalidator:
    return CallerRevalidator(database)


@pytest.fixture
def organization_id(factory: IdentityFactory) -> UUID:
    return factory.organization().id


@pytest.fixture
def person(factory: IdentityFactory, organization_id: UUID) -> Person:
    return factory.person(organization_id)


def authenticate(factory: IdentityFactory, authorization: str) -> Caller:
    authenticator = factory.authenticator()
    return authenticator.resolve(authenticator.authenticate(authorization), None)


def test_unrevoked_caller_is_revalidated_unchanged(
    revalidator: CallerRevalidator, factory: IdentityFactory, person: Person, organization_id: UUID
) -> None:
    for authorization in (
        person.authorization,
        factory.authorization(factory.deployment(organization_id)),
        factory.operator().authorization,
    ):
        caller = authenticate(factory, authorization)
        assert revalidator.revalidate(caller) == caller


Revoke = Callable[[Session, Caller, UUID], object]
REVOCATIONS: dict[str, tuple[Revoke, type[DomainError]]] = {
    "key": (
        lambda session, caller, _: revoke_api_key(session, actor=OPERATOR, key_id=caller.credential_id),
        InvalidToken,
    ),
    "user": (
        lambda session, caller, _: disable_user(session, actor=OPERATOR, user_id=caller.executor.id),
        InvalidToken,
    ),
    "membership": (
        lambda session, caller, organization_id: remove_member(
            session, actor=OPERATOR, organization_id=organization_id, user_id=caller.executor.id
        ),
        InvalidToken,
    ),
    "organization": (
        lambda session, _, organization_id: suspend_organization(
            session, actor=OPERATOR, organization_id=organization_id
        ),
        OrganizationSuspended,
    ),
}


@pytest.mark.parametrize("revoked", REVOCATIONS)
def test_a_user_who_lost_the_right_to_call_is_refused(
    revalidator: CallerRevalidator,
    database: Database,
    factory: IdentityFactory,
    person: Person,
    organization_id: UUID,
    revoked: str,
) -> None:
    act, refusal = REVOCATIONS[revoked]
    caller = authenticate(factory, person.authorization)
    with database.transaction() as session:
        act(session, caller, organization_id)
    with pytest.raises(refusal):
        revalidator.revalidate(caller)


def test_an_operator_acts_no_longer_in_an_organization_that_was_suspended(
    revalidator: CallerRevalidator, database: Database, factory: IdentityFactory, organization_id: UUID
) -> None:
    operator = factory.operator()
    with database.transaction() as session:
        add_member(
            session,
            actor=OPERATOR,
            organization_id=organization_id,
            email=operator.email,
            role=Role.WORKSPACE_ADMIN,
        )
    caller = authenticate(factory, operator.authorization)
    assert caller.organization_id == organization_id
    with database.transaction() as session:
        suspend_organization(session, actor=OPERATOR, organization_id=organization_id)
    with pytest.raises(OrganizationSuspended):
        revalidator.revalidate(caller)


def test_call_stays_in_its_organization_after_its_user_selects_another(
    revalidator: CallerRevalidator, database: Database, factory: IdentityFactory, person: Person
) -> None:
    caller = authenticate(factory, person.authorization)
    with database.transaction() as session:
        session.execute(update(users).where(users.c.id == person.user_id).values(active_organization_id=None))
    assert revalidator.revalidate(caller) == caller


EXPIRIES: dict[str, Table] = {
    "key": api_keys,
    "client secret": client_credentials,
    "session": console_sessions,
}


@pytest.mark.parametrize("expired", EXPIRIES)
def test_expired_credential_ends_no_call_and_loses_no_write(
    revalidator: CallerRevalidator,
    database: Database,
    factory: IdentityFactory,
    organization_id: UUID,
    expired: str,
) -> None:
    caller = admit_caller(factory, organization_id, expired)
    table = EXPIRIES[expired]
    over = update(table).where(table.c.id == caller.credential_id)
    with database.transaction() as session:
        session.execute(over.values(expires_at=func.now() - timedelta(hours=1)))
    assert revalidator.revalidate(caller) == caller
    require_authority(database, caller, organization_id)


def test_idle_or_expired_session_does_not_end_a_running_call(
    revalidator: CallerRevalidator, database: Database, factory: IdentityFactory, organization_id: UUID
) -> None:
    caller = admit_caller(factory, organization_id, "session")
    over = update(console_sessions).where(console_sessions.c.id == caller.credential_id)
    with database.transaction() as session:
        session.execute(over.values(last_used_at=func.now() - timedelta(hours=12), expires_at=func.now()))
    sweep_console_sessions(database, factory.settings)
    assert revalidator.revalidate(caller) == caller
    require_authority(database, caller, organization_id)


@pytest.mark.parametrize("revoked", EXPIRIES)
def test_revoked_credential_ends_the_call_even_if_it_has_also_expired(
    revalidator: CallerRevalidator,
    database: Database,
    factory: IdentityFactory,
    organization_id: UUID,
    revoked: str,
) -> None:
    caller = admit_caller(factory, organization_id, revoked)
    table = EXPIRIES[revoked]
    over = update(table).where(table.c.id == caller.credential_id)
    with database.transaction() as session:
        session.execute(over.values(expires_at=func.now() - timedelta(hours=1), revoked_at=func.now()))
    with pytest.raises(InvalidToken):
        revalidator.revalidate(caller)
    with pytest.raises(DatabaseError, match="revoked"):
        require_authority(database, caller, organization_id)


def admit_caller(factory: IdentityFactory, organization_id: UUID, credential: str) -> Caller:
    """Return a new caller who may create files in an organization."""
    authenticator = factory.authenticator()
    if credential == "client secret":
        return authenticate(factory, factory.authorization(factory.deployment(organization_id)))
    person = factory.person(organization_id, Role.WORKSPACE_ADMIN)
    if credential == "key":
        return authenticate(factory, person.authorization)
    with factory.database.transaction() as session:
        link = issue_link(session, actor=OPERATOR, user_id=person.user_id)
        begun = sign_in(session, link.code.value)
    assert begun is not None
    return authenticator.resolve(authenticator.authenticate_session(begun.token.value), None)


def require_authority(database: Database, caller: Caller, organization_id: UUID) -> None:
    """Run the check of the statement that commits an upload of the caller."""
    owner_id = caller.owner.id if caller.owner is not None else caller.executor.id
    rests_on = authority(caller, Permission.FILE_CREATE, owner_id=owner_id, organization_id=organization_id)
    with database.transaction() as session:
        assert session.execute(text(f"SELECT {REQUIRE_AUTHORITY}"), {"authority": rests_on}).scalar()


def test_a_token_that_ran_out_ends_no_call(database: Database, settings: Settings) -> None:
    # Whole seconds count, so that a token of three may run out after little more than two.
    brief = settings.model_copy(update={"access_token_seconds": 3})
    factory = IdentityFactory(database, brief)
    authorization = factory.authorization(factory.deployment(factory.organization().id))
    caller = authenticate(factory, authorization)
    wait_until(lambda: has_run_out(factory, authorization), "the token has run out")
    assert CallerRevalidator(database).revalidate(caller) == caller


def has_run_out(factory: IdentityFactory, authorization: str) -> bool:
    try:
        authenticate(factory, authorization)
    except ExpiredToken:
        return True
    return False
