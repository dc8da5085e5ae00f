"""Every administrative operation, by each actor who may and each actor who may not."""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

import pytest

from shared.config.settings import Settings
from shared.db.database import Database, Session
from shared.errors import PermissionDenied
from shared.identity.access.authorization import OPERATOR, Actor
from shared.identity.access.roles import Role, ScopeKind
from shared.identity.audit import list_audit_events
from shared.identity.credentials.api_keys import list_organization_api_keys
from shared.identity.credentials.client_credentials import (
    issue_client_credential,
    list_client_credentials,
    revoke_client_credential,
)
from shared.identity.directory import distributions
from shared.identity.directory.deployments import (
    DeploymentKind,
    create_deployment,
    disable_deployment,
    get_deployment,
    list_deployments,
)
from shared.identity.directory.identities import (
    create_principal_identity,
    disable_identity,
    get_identity,
    list_identities,
)
from shared.identity.directory.invitations import invite_member
from shared.identity.directory.memberships import list_members
from shared.identity.directory.organizations import (
    create_organization,
    get_organization,
    rename_organization,
    resume_organization,
    suspend_organization,
)
from shared.identity.directory.role_bindings import bind_identity_role, list_role_bindings
from shared.identity.directory.users import create_user, list_users
from shared.identity.directory.versions import deploy_version, list_versions, revoke_version
from shared.identity.errors import ResourceNotFound
from tests.shared.identity.conftest import World
from tests.support.data.identity import IdentityFactory


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt of an actor to run an operation in a world."""

    session: Session
    by: Actor
    world: World
    settings: Settings


Operation = Callable[[Attempt], object]


READS: dict[str, Operation] = {
    "get organization": lambda t: get_organization(
        t.session, actor=t.by, organization_id=t.world.organization_id
    ),
    "list members": lambda t: list_members(t.session, actor=t.by, organization_id=t.world.organization_id),
    "list identities": lambda t: list_identities(
        t.session, actor=t.by, organization_id=t.world.organization_id
    ),
    "get identity": lambda t: get_identity(t.session, actor=t.by, identity_id=t.world.principal_id),
    "list deployments": lambda t: list_deployments(
        t.session, actor=t.by, organization_id=t.world.organization_id
    ),
    "get deployment": lambda t: get_deployment(
        t.session, actor=t.by, deployment_id=t.world.deployment.deployment.id
    ),
    "list versions": lambda t: list_versions(
        t.session, actor=t.by, deployment_id=t.world.deployment.deployment.id
    ),
    "list distributions": lambda t: distributions.list_distributions(
        t.session, actor=t.by, organization_id=t.world.organization_id
    ),
    "get distribution": lambda t: distributions.get_distribution(
        t.session, actor=t.by, distribution_id=t.world.distribution.distribution.id
    ),
    "list role bindings": lambda t: list_role_bindings(
        t.session, actor=t.by, organization_id=t.world.organization_id
    ),
}


CHANGES: dict[str, Operation] = {
    "rename organization": lambda t: rename_organization(
        t.session, actor=t.by, organization_id=t.world.organization_id, name="New"
    ),
    "invite member": lambda t: invite_member(
        t.session,
        actor=t.by,
        organization_id=t.world.organization_id,
        email="new@example.org",
        role=Role.MEMBER,
    ),
    "create principal": lambda t: create_principal_identity(
        t.session, actor=t.by, organization_id=t.world.organization_id, name="new"
    ),
    "disable identity": lambda t: disable_identity(t.session, actor=t.by, identity_id=t.world.principal_id),
    "create deployment": lambda t: create_deployment(
        t.session, actor=t.by, organization_id=t.world.organization_id, kind=DeploymentKind.GITHUB, name="new"
    ),
    "disable deployment": lambda t: disable_deployment(
        t.session, actor=t.by, deployment_id=t.world.deployment.deployment.id
    ),
    "deploy version": lambda t: deploy_version(
        t.session, actor=t.by, deployment_id=t.world.deployment.deployment.id
    ),
    "revoke version": lambda t: revoke_version(
        t.session, actor=t.by, version_id=t.world.deployment.version.id
    ),
    "issue client secret": lambda t: issue_client_credential(
        t.session, actor=t.by, deployment_id=t.world.deployment.deployment.id
    ),
    "list client secrets": lambda t: list_client_credentials(
        t.session, actor=t.by, deployment_id=t.world.deployment.deployment.id
    ),
    "revoke client secret": lambda t: revoke_client_credential(
        t.session, actor=t.by, credential_id=t.world.deployment.credential.credential.id
    ),
    "create distribution": lambda t: distributions.create_distribution(
        t.session,
        t.settings,
        actor=t.by,
        organization_id=t.world.organization_id,
        name="new",
        networks=["telegram"],
        principal_identity_id=t.world.principal_id,
        deployment_id=t.world.deployment.deployment.id,
    ),
    "update distribution": lambda t: distributions.update_distribution(
        t.session, actor=t.by, distribution_id=t.world.distribution.distribution.id, media_retention_days=7
    ),
    "disable distribution": lambda t: distributions.disable_distribution(
        t.session, actor=t.by, distribution_id=t.world.distribution.distribution.id
    ),
    "enable distribution": lambda t: distributions.enable_distribution(
        t.session, actor=t.by, distribution_id=t.world.distribution.distribution.id
    ),
    "rotate distribution token": lambda t: distributions.rotate_distribution_token(
        t.session, actor=t.by, distribution_id=t.world.distribution.distribution.id
    ),
    "rotate webhook secret": lambda t: distributions.rotate_webhook_secret(
        t.session, t.settings, actor=t.by, distribution_id=t.world.distribution.distribution.id
    ),
    "bind role": lambda t: bind_identity_role(
        t.session,
        actor=t.by,
        organization_id=t.world.organization_id,
        identity_id=t.world.principal_id,
        role=Role.PROJECT_AGENT,
        scope_kind=ScopeKind.ORGANIZATION,
        scope_id=t.world.organization_id,
    ),
    "list keys of the organization": lambda t: list_organization_api_keys(
        t.session, actor=t.by, organization_id=t.world.organization_id
    ),
    "list audit events": lambda t: list_audit_events(
        t.session, actor=t.by, organization_id=t.world.organization_id
    ),
}


OPERATIONS: dict[str, Operation] = {
    "create organization": lambda t: create_organization(
        t.session, actor=t.by, name="Other", owner_id=t.by.user_id or UUID(int=0)
    ),
    "suspend organization": lambda t: suspend_organization(
        t.session, actor=t.by, organization_id=t.world.organization_id
    ),
    "resume organization": lambda t: resume_organization(
        t.session, actor=t.by, organization_id=t.world.organization_id
    ),
    "create user": lambda t: create_user(t.session, actor=t.by, email="someone@example.org"),
    "list users": lambda t: list_users(t.session, actor=t.by),
}


def attempt(factory: IdentityFactory, operation: Operation, actor: Actor, world: World) -> None:
    """Run an operation and roll it back."""

    class _Undo(Exception):
        pass

    try:
        with factory.database.transaction() as session:
            operation(Attempt(session=session, by=actor, world=world, settings=factory.settings))
            raise _Undo
    except _Undo:
        pass


@pytest.mark.parametrize("name", READS | CHANGES)
def test_owners_admins_and_operators_administer(factory: IdentityFactory, world: World, name: str) -> None:
    operation = (READS | CHANGES)[name]
    for role in (Role.WORKSPACE_OWNER, Role.WORKSPACE_ADMIN):
        attempt(factory, operation, factory.actor(factory.person(world.organization_id, role)), world)
    attempt(factory, operation, factory.actor(factory.operator()), world)


@pytest.mark.parametrize("name", READS)
def test_members_read_what_the_workspace_shows(factory: IdentityFactory, world: World, name: str) -> None:
    attempt(factory, READS[name], factory.actor(factory.person(world.organization_id)), world)


@pytest.mark.parametrize("name", CHANGES)
def test_members_change_nothing(factory: IdentityFactory, world: World, name: str) -> None:
    member = factory.actor(factory.person(world.organization_id))
    with pytest.raises(PermissionDenied):
        attempt(factory, CHANGES[name], member, world)


@pytest.mark.parametrize("name", READS | CHANGES)
def test_owner_of_another_organization_sees_no_resources(
    factory: IdentityFactory, world: World, name: str
) -> None:
    stranger = factory.actor(factory.person(factory.organization().id, Role.WORKSPACE_OWNER))
    with pytest.raises(ResourceNotFound):
        attempt(factory, (READS | CHANGES)[name], stranger, world)


@pytest.mark.parametrize("name", READS | CHANGES)
def test_a_daemon_never_administers(factory: IdentityFactory, world: World, name: str) -> None:
    """A daemon with an administrator's role included: its token's scope cannot contain the permissions."""
    factory.bind_identity(world.organization_id, world.daemon_id, Role.WORKSPACE_OWNER)
    authenticator = factory.authenticator()
    credential = authenticator.authenticate(factory.authorization(world.deployment))
    daemon = Actor(caller=authenticator.resolve(credential, None))
    with pytest.raises(PermissionDenied):
        attempt(factory, (READS | CHANGES)[name], daemon, world)


@pytest.mark.parametrize("name", OPERATIONS)
def test_only_operators_operate(factory: IdentityFactory, world: World, name: str) -> None:
    owner = factory.actor(factory.person(world.organization_id, Role.WORKSPACE_OWNER))
    with pytest.raises(PermissionDenied):
        attempt(factory, OPERATIONS[name], owner, world)
    attempt(factory, OPERATIONS[name], factory.actor(factory.operator()), world)


def test_a_role_over_one_owner_administers_nothing(factory: IdentityFactory, world: World) -> None:
    person = factory.person(world.organization_id)
    factory.bind_user(world.organization_id, person.user_id, Role.WORKSPACE_OWNER, over=world.principal_id)
    for operation in CHANGES.values():
        with pytest.raises(PermissionDenied):
            attempt(factory, operation, factory.actor(person), world)


def test_operator_gets_not_found_for_an_unknown_organization(factory: IdentityFactory, world: World) -> None:
    nowhere = World(
        organization_id=UUID(int=1),
        deployment=world.deployment,
        distribution=world.distribution,
        principal_id=world.principal_id,
        daemon_id=world.daemon_id,
    )
    for name in (
        "invite member",
        "create principal",
        "create deployment",
        "create distribution",
        "bind role",
    ):
        with pytest.raises(ResourceNotFound):
            attempt(factory, CHANGES[name], OPERATOR, nowhere)


def test_a_refused_or_rolled_back_change_leaves_no_trace(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    with database.transaction() as session:
        before = len(list_audit_events(session, actor=OPERATOR, organization_id=world.organization_id).items)
    attempt(factory, CHANGES["create deployment"], OPERATOR, world)
    with database.transaction() as session:
        after = len(list_audit_events(session, actor=OPERATOR, organization_id=world.organization_id).items)
    assert after == before
