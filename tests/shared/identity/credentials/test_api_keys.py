"""API keys: their user, organization and expiry, and who may issue and revoke them."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from shared.db.database import Database
from shared.errors import PermissionDenied, ValidationFailed
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.credentials.api_keys import (
    issue_api_key,
    list_api_keys,
    list_organization_api_keys,
    revoke_api_key,
)
from shared.identity.directory.memberships import add_member
from shared.identity.directory.organizations import list_organizations
from shared.identity.directory.users import get_user, select_active_organization
from shared.identity.errors import InvalidToken, ResourceNotFound, TooManyLive
from tests.shared.identity.conftest import World
from tests.support.data.identity import IdentityFactory


def test_a_bound_key_stays_in_its_organization(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    person = factory.person(world.organization_id, Role.WORKSPACE_OWNER, bound=True)
    other = factory.organization()
    with database.transaction() as session:
        add_member(
            session, actor=OPERATOR, organization_id=other.id, email=person.email, role=Role.WORKSPACE_OWNER
        )
        unbound = issue_api_key(
            session, actor=OPERATOR, user_id=person.user_id, organization_id=None, name="unbound"
        )
    actor = factory.actor(person)
    for organization_id in (None, other.id):
        with pytest.raises(PermissionDenied), database.transaction() as session:
            issue_api_key(
                session, actor=actor, user_id=person.user_id, organization_id=organization_id, name="wider"
            )
    with pytest.raises(PermissionDenied), database.transaction() as session:
        select_active_organization(session, actor=actor, organization_id=other.id)
    with pytest.raises(ResourceNotFound), database.transaction() as session:
        revoke_api_key(session, actor=actor, key_id=unbound.key.id)
    with database.transaction() as session:
        assert [found.id for found in list_organizations(session, actor=actor).items] == [
            world.organization_id
        ]
        assert len(list_api_keys(session, actor=actor, user_id=person.user_id).items) == 1


def test_people_manage_their_own_keys_and_not_each_others(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    me, other = factory.person(world.organization_id), factory.person(world.organization_id)
    actor = factory.actor(me)
    with database.transaction() as session:
        issued = issue_api_key(session, actor=actor, user_id=me.user_id, organization_id=None, name="laptop")
        listed = list_api_keys(session, actor=actor, user_id=me.user_id).items
        assert issued.key in listed
        (others,) = list_api_keys(session, actor=OPERATOR, user_id=other.user_id).items
    for operation in (
        lambda s: issue_api_key(s, actor=actor, user_id=other.user_id, organization_id=None, name="x"),
        lambda s: issue_api_key(
            s, actor=actor, user_id=other.user_id, organization_id=world.organization_id, name="x"
        ),
        lambda s: list_api_keys(s, actor=actor, user_id=other.user_id),
        lambda s: revoke_api_key(s, actor=actor, key_id=others.id),
        lambda s: get_user(s, actor=actor, user_id=other.user_id),
    ):
        with pytest.raises((PermissionDenied, ResourceNotFound)), database.transaction() as session:
            operation(session)
    assert factory.authenticator().authenticate(f"Bearer {issued.secret.value}").caller is not None
    with database.transaction() as session:
        revoked = revoke_api_key(session, actor=actor, key_id=issued.key.id)
        assert revoke_api_key(session, actor=actor, key_id=issued.key.id) == revoked
    with pytest.raises(InvalidToken):
        factory.authenticator().authenticate(f"Bearer {issued.secret.value}")


def test_nobody_but_operators_makes_keys_for_others(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    member = factory.person(world.organization_id)
    for role in (Role.WORKSPACE_ADMIN, Role.WORKSPACE_OWNER):
        by = factory.actor(factory.person(world.organization_id, role))
        for organization_id in (world.organization_id, None):
            with pytest.raises(PermissionDenied), database.transaction() as session:
                issue_api_key(
                    session,
                    actor=by,
                    user_id=member.user_id,
                    organization_id=organization_id,
                    name="for them",
                )


def test_an_admin_sees_and_revokes_bound_keys_of_members(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    admin = factory.actor(factory.person(world.organization_id, Role.WORKSPACE_ADMIN))
    member = factory.actor(factory.person(world.organization_id))
    assert member.user_id is not None
    with database.transaction() as session:
        issued = issue_api_key(
            session, actor=member, user_id=member.user_id, organization_id=world.organization_id, name="mine"
        )
        listed = list_organization_api_keys(session, actor=admin, organization_id=world.organization_id)
        assert issued.key in listed.items
        assert revoke_api_key(session, actor=admin, key_id=issued.key.id).revoked_at is not None


def test_a_key_expires_and_must_expire_in_the_future(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    me = factory.person(world.organization_id)
    with pytest.raises(ValidationFailed), database.transaction() as session:
        issue_api_key(
            session,
            actor=factory.actor(me),
            user_id=me.user_id,
            organization_id=None,
            name="past",
            expires_at=datetime.now(UTC) - timedelta(days=1),
        )
    with database.transaction() as session:
        session.execute(
            text("UPDATE api_keys SET expires_at = now() WHERE user_id = :user_id"), {"user_id": me.user_id}
        )
    with pytest.raises(InvalidToken):
        factory.authenticator().authenticate(me.authorization)


def test_a_user_has_at_most_a_hundred_live_keys(
    factory: IdentityFactory, database: Database, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.identity.credentials.api_keys.LIVE_LIMIT", 2)
    me = factory.person(world.organization_id)
    actor = factory.actor(me)
    with database.transaction() as session:
        issue_api_key(session, actor=actor, user_id=me.user_id, organization_id=None, name="second")
        with pytest.raises(TooManyLive):
            issue_api_key(session, actor=actor, user_id=me.user_id, organization_id=None, name="third")


def test_keys_bound_to_one_organization_use_up_nothing_elsewhere(
    factory: IdentityFactory, database: Database, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.identity.credentials.api_keys.LIVE_LIMIT", 1)
    me, other = factory.person(world.organization_id, bound=True), factory.organization()
    with database.transaction() as session:
        add_member(session, actor=OPERATOR, organization_id=other.id, email=me.email, role=Role.MEMBER)
        for organization_id in (other.id, None):
            issue_api_key(
                session, actor=OPERATOR, user_id=me.user_id, organization_id=organization_id, name="elsewhere"
            )
        with pytest.raises(TooManyLive):
            issue_api_key(
                session,
                actor=OPERATOR,
                user_id=me.user_id,
                organization_id=world.organization_id,
                name="second",
            )
