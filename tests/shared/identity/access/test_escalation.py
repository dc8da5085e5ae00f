"""No actor gains more permissions than it holds, and no permission crosses organizations."""

from collections.abc import Callable
from functools import partial

import pytest

from shared.db.database import Database, Session
from shared.errors import PermissionDenied, ValidationFailed
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.permissions import OPERATOR_PERMISSIONS, Permission
from shared.identity.access.roles import ROLE_PERMISSIONS, Role, ScopeKind
from shared.identity.credentials.api_keys import issue_api_key
from shared.identity.directory.distributions import create_distribution
from shared.identity.directory.memberships import add_member, change_member_role, remove_member
from shared.identity.directory.organizations import resume_organization, suspend_organization
from shared.identity.directory.role_bindings import bind_identity_role, bind_user_role
from shared.identity.errors import GrantExceedsGranter, ResourceNotFound
from tests.shared.identity.conftest import World, make_world
from tests.support.data.identity import IdentityFactory, Person


def admit(session: Session, person: Person, world: World, role: Role) -> None:
    add_member(session, actor=OPERATOR, organization_id=world.organization_id, email=person.email, role=role)


def test_an_operators_key_that_is_bound_operates_nothing(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    operator = factory.operator()
    with database.transaction() as session:
        admit(session, operator, world, Role.MEMBER)
        issued = issue_api_key(
            session,
            actor=OPERATOR,
            user_id=operator.user_id,
            organization_id=world.organization_id,
            name="bound",
        )
    authenticator = factory.authenticator()
    credential = authenticator.authenticate(f"Bearer {issued.secret.value}")
    assert not authenticator.resolve(credential, None).is_operator


def test_an_operator_still_reaches_a_suspended_organization_from_outside_it(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    operator = factory.operator()
    with database.transaction() as session:
        admit(session, operator, world, Role.WORKSPACE_OWNER)
        suspend_organization(session, actor=OPERATOR, organization_id=world.organization_id)
    actor = factory.actor(operator)
    assert actor.caller.organization_id is None
    assert actor.caller.permissions_on(organization_id=world.organization_id) == frozenset()
    with database.transaction() as session:
        resumed = resume_organization(session, actor=actor, organization_id=world.organization_id)
    assert resumed.suspended_at is None


def test_no_role_of_an_organization_holds_what_operators_alone_may_do() -> None:
    assert {Permission.CREDIT_GRANT, Permission.INSTALLATION_OPERATE} == OPERATOR_PERMISSIONS
    for permissions in ROLE_PERMISSIONS.values():
        assert not permissions & OPERATOR_PERMISSIONS
    only_owners = ROLE_PERMISSIONS[Role.WORKSPACE_OWNER] - ROLE_PERMISSIONS[Role.WORKSPACE_ADMIN]
    assert only_owners == {Permission.OWNER_MANAGE, Permission.CREDIT_MANAGE}


def test_an_admin_can_neither_make_nor_touch_an_owner(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    organization_id = world.organization_id
    admin_person = factory.person(organization_id, Role.WORKSPACE_ADMIN)
    admin = factory.actor(admin_person)
    owner = factory.person(organization_id, Role.WORKSPACE_OWNER)
    refused: list[Callable[[Session], object]] = [
        lambda s: add_member(
            s, actor=admin, organization_id=organization_id, email="o@example.org", role=Role.WORKSPACE_OWNER
        ),
        lambda s: change_member_role(
            s,
            actor=admin,
            organization_id=organization_id,
            user_id=admin_person.user_id,
            role=Role.WORKSPACE_OWNER,
        ),
        lambda s: change_member_role(
            s, actor=admin, organization_id=organization_id, user_id=owner.user_id, role=Role.MEMBER
        ),
        lambda s: remove_member(s, actor=admin, organization_id=organization_id, user_id=owner.user_id),
        lambda s: issue_api_key(
            s, actor=admin, user_id=owner.user_id, organization_id=organization_id, name="stolen"
        ),
        lambda s: issue_api_key(s, actor=admin, user_id=owner.user_id, organization_id=None, name="stolen"),
        lambda s: bind_identity_role(
            s,
            actor=admin,
            organization_id=organization_id,
            identity_id=world.daemon_id,
            role=Role.WORKSPACE_OWNER,
            scope_kind=ScopeKind.ORGANIZATION,
            scope_id=organization_id,
        ),
    ]
    for operation in refused:
        with pytest.raises((PermissionDenied, GrantExceedsGranter)), database.transaction() as session:
            operation(session)


def test_roles_do_not_cross_organizations(factory: IdentityFactory, database: Database, world: World) -> None:
    other = make_world(factory)
    owner = factory.actor(factory.person(world.organization_id, Role.WORKSPACE_OWNER))
    stranger = factory.person(other.organization_id)
    bind = partial(
        bind_identity_role, actor=owner, organization_id=world.organization_id, role=Role.PROJECT_AGENT
    )
    distribute = partial(
        create_distribution,
        settings=factory.settings,
        actor=owner,
        organization_id=world.organization_id,
        name="x",
        networks=["slack"],
    )
    over_organization = partial(bind, scope_kind=ScopeKind.ORGANIZATION, scope_id=world.organization_id)
    over_stranger = partial(bind, scope_kind=ScopeKind.IDENTITY, scope_id=other.principal_id)
    for operation in (
        lambda s: over_organization(s, identity_id=other.daemon_id),
        lambda s: over_stranger(s, identity_id=world.daemon_id),
        lambda s: bind_user_role(
            s,
            actor=owner,
            organization_id=world.organization_id,
            user_id=stranger.user_id,
            role=Role.PROJECT_AGENT,
            owner_id=world.principal_id,
        ),
        lambda s: distribute(
            s, principal_identity_id=other.principal_id, deployment_id=world.deployment.deployment.id
        ),
        lambda s: distribute(
            s, principal_identity_id=world.principal_id, deployment_id=other.deployment.deployment.id
        ),
    ):
        with pytest.raises(ResourceNotFound), database.transaction() as session:
            operation(session)
    with pytest.raises(ValidationFailed), database.transaction() as session:
        bind(
            session,
            identity_id=world.daemon_id,
            scope_kind=ScopeKind.ORGANIZATION,
            scope_id=other.organization_id,
        )


def test_a_daemon_does_not_receive_messages(factory: IdentityFactory, world: World) -> None:
    with pytest.raises(ResourceNotFound):
        factory.distribution(
            world.organization_id, principal_id=world.daemon_id, deployment_id=world.deployment.deployment.id
        )
