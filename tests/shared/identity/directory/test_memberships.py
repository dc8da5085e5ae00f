"""Memberships: adding, changing and removing members, and the rights that removed members lose."""

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from shared.db.database import Database
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.directory.memberships import add_member, change_member_role, list_members, remove_member
from shared.identity.directory.organizations import list_organizations
from shared.identity.directory.users import create_user, disable_user, enable_user, select_active_organization
from shared.identity.errors import AlreadyExists, InvalidToken, LastOwner, ResourceNotFound
from tests.shared.identity.conftest import World
from tests.support.data.identity import IdentityFactory


def test_an_organization_keeps_an_owner(factory: IdentityFactory, database: Database) -> None:
    organization = factory.organization()
    with database.transaction() as session:
        (first,) = list_members(session, actor=OPERATOR, organization_id=organization.id).items
    for operation in (
        lambda s: remove_member(s, actor=OPERATOR, organization_id=organization.id, user_id=first.user_id),
        lambda s: change_member_role(
            s, actor=OPERATOR, organization_id=organization.id, user_id=first.user_id, role=Role.MEMBER
        ),
    ):
        with pytest.raises(LastOwner), database.transaction() as session:
            operation(session)
    second = factory.person(organization.id, Role.WORKSPACE_OWNER)
    with database.transaction() as session:
        remove_member(
            session, actor=factory.actor(second), organization_id=organization.id, user_id=first.user_id
        )


def test_an_operator_disables_the_last_owner_too_and_gives_the_organization_another(
    factory: IdentityFactory, database: Database
) -> None:
    organization = factory.organization()
    with database.transaction() as session:
        (last,) = list_members(session, actor=OPERATOR, organization_id=organization.id).items
        assert disable_user(session, actor=OPERATOR, user_id=last.user_id).disabled_at is not None
    another = factory.person(organization.id, Role.WORKSPACE_OWNER)
    with pytest.raises(LastOwner), database.transaction() as session:
        remove_member(session, actor=OPERATOR, organization_id=organization.id, user_id=another.user_id)
    with database.transaction() as session:
        remove_member(
            session, actor=factory.actor(another), organization_id=organization.id, user_id=last.user_id
        )


def test_removed_member_loses_bindings_keys_and_selection(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    bound = factory.person(world.organization_id, Role.WORKSPACE_ADMIN, bound=True)
    unbound = factory.person(world.organization_id, Role.WORKSPACE_ADMIN)
    for person in (bound, unbound):
        factory.bind_user(
            world.organization_id, person.user_id, Role.WORKSPACE_ADMIN, over=world.principal_id
        )
        with database.transaction() as session:
            remove_member(
                session, actor=OPERATOR, organization_id=world.organization_id, user_id=person.user_id
            )
    with pytest.raises(InvalidToken):
        factory.authenticator().authenticate(bound.authorization)
    caller = factory.actor(unbound).caller
    assert caller.organization_id is None
    assert not caller.permissions_on(organization_id=world.organization_id, owner_id=world.principal_id)


def test_adding_a_member_twice_is_refused_ignoring_address_case(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    person = factory.person(world.organization_id)
    with pytest.raises(AlreadyExists), database.transaction() as session:
        add_member(
            session,
            actor=OPERATOR,
            organization_id=world.organization_id,
            email=person.email.upper(),
            role=Role.MEMBER,
        )
    with pytest.raises(AlreadyExists), database.transaction() as session:
        create_user(session, actor=OPERATOR, email=person.email.title())


def test_a_user_selects_among_their_own_organizations(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    person = factory.person(world.organization_id)
    other = factory.organization()
    with pytest.raises(ResourceNotFound), database.transaction() as session:
        select_active_organization(session, actor=factory.actor(person), organization_id=other.id)
    with database.transaction() as session:
        add_member(
            session, actor=OPERATOR, organization_id=other.id, email=person.email, role=Role.WORKSPACE_ADMIN
        )
    assert factory.actor(person).caller.organization_id == world.organization_id
    with database.transaction() as session:
        select_active_organization(session, actor=factory.actor(person), organization_id=other.id)
        mine = list_organizations(session, actor=factory.actor(person)).items
    assert {organization.id for organization in mine} == {world.organization_id, other.id}
    assert factory.actor(person).caller.organization_id == other.id


def test_a_disabled_user_is_locked_out_until_enabled(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    person = factory.person(world.organization_id)
    with database.transaction() as session:
        first = disable_user(session, actor=OPERATOR, user_id=person.user_id)
        assert disable_user(session, actor=OPERATOR, user_id=person.user_id) == first
    with pytest.raises(InvalidToken):
        factory.authenticator().authenticate(person.authorization)
    with database.transaction() as session:
        enable_user(session, actor=OPERATOR, user_id=person.user_id)
    assert factory.authenticator().authenticate(person.authorization).caller is not None


def test_two_owners_cannot_remove_each_other_at_once(factory: IdentityFactory, database: Database) -> None:
    organization = factory.organization()
    with database.transaction() as session:
        (first,) = list_members(session, actor=OPERATOR, organization_id=organization.id).items
    owners = [first.user_id, factory.person(organization.id, Role.WORKSPACE_OWNER).user_id]

    def remove(user_id: UUID) -> bool:
        try:
            with database.transaction() as session:
                remove_member(session, actor=OPERATOR, organization_id=organization.id, user_id=user_id)
        except LastOwner:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(remove, owners)) == [False, True]
