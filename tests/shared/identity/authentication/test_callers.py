"""The four principals of a call, for every kind of credential, with and without an attribution."""

import pytest

from shared.db.database import Database
from shared.errors import PermissionDenied
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.callers import ExecutorKind, OwnerKind
from shared.identity.access.claims import ReportedCaller
from shared.identity.access.permissions import Permission
from shared.identity.access.roles import ROLE_PERMISSIONS, Role
from shared.identity.directory.distributions import disable_distribution
from shared.identity.directory.identities import disable_identity, enable_identity
from shared.identity.directory.organizations import suspend_organization
from shared.identity.directory.role_bindings import list_role_bindings, unbind_role
from shared.identity.errors import (
    AttributionEmpty,
    AttributionInvalid,
    AttributionMismatch,
    AttributionRepeated,
    InvalidToken,
    OrganizationSuspended,
)
from tests.shared.identity.conftest import World, attribute, make_world
from tests.support.data.identity import IdentityFactory


def test_a_direct_call_is_owned_and_paid_by_the_deployments_own(
    factory: IdentityFactory, world: World
) -> None:
    authenticator = factory.authenticator()
    caller = authenticator.resolve(authenticator.authenticate(factory.authorization(world.deployment)), None)
    assert caller.executor.kind is ExecutorKind.DAEMON_IDENTITY
    assert caller.executor.id == world.daemon_id
    assert caller.owner is not None
    assert (caller.owner.kind, caller.owner.id) == (OwnerKind.DAEMON_IDENTITY, world.daemon_id)
    assert caller.organization_id == caller.payer_id == world.organization_id
    assert caller.deployment_id == world.deployment.deployment.id
    assert caller.version_id == world.deployment.version.id


def test_attributed_call_has_the_principal_as_owner_and_the_daemon_as_executor(
    factory: IdentityFactory, world: World
) -> None:
    authenticator = factory.authenticator()
    credential = authenticator.authenticate(factory.authorization(world.deployment))
    caller = authenticator.resolve(credential, factory.attribution(world.distribution))
    assert caller.owner is not None
    assert (caller.owner.kind, caller.owner.id) == (OwnerKind.PRINCIPAL_IDENTITY, world.principal_id)
    assert caller.executor.id == world.daemon_id
    assert caller.payer_id == world.organization_id
    assert caller.distribution_id == world.distribution.distribution.id
    assert caller.transaction_id is not None
    assert caller.reported_caller == ReportedCaller(id="U123", display="Ada")


def test_stripping_the_attribution_makes_the_call_direct_and_reaches_no_principal(
    factory: IdentityFactory, world: World
) -> None:
    authenticator = factory.authenticator()
    credential = authenticator.authenticate(factory.authorization(world.deployment))
    stripped = authenticator.resolve(credential, None)
    assert stripped.owner is not None
    assert stripped.owner.id == world.daemon_id


def test_an_attribution_of_another_deployment_is_a_mismatch(factory: IdentityFactory, world: World) -> None:
    other = factory.deployment(world.organization_id)
    authenticator = factory.authenticator()
    credential = authenticator.authenticate(factory.authorization(other))
    with pytest.raises(AttributionMismatch):
        authenticator.resolve(credential, factory.attribution(world.distribution))


def test_a_user_cannot_use_an_attribution(factory: IdentityFactory, world: World) -> None:
    authenticator = factory.authenticator()
    person = factory.person(world.organization_id, Role.WORKSPACE_OWNER)
    credential = authenticator.authenticate(person.authorization)
    with pytest.raises(AttributionMismatch):
        authenticator.resolve(credential, factory.attribution(world.distribution))
    with pytest.raises(AttributionInvalid):
        authenticator.resolve(credential, "not.a.token")


@pytest.mark.parametrize("value", ["", " ", "\t"])
def test_an_empty_attribution_is_refused_as_such(factory: IdentityFactory, world: World, value: str) -> None:
    authenticator = factory.authenticator()
    credential = authenticator.authenticate(factory.authorization(world.deployment))
    with pytest.raises(AttributionEmpty):
        authenticator.resolve(credential, value)


def test_two_attributions_joined_by_a_comma_are_refused(factory: IdentityFactory, world: World) -> None:
    authenticator = factory.authenticator()
    credential = authenticator.authenticate(factory.authorization(world.deployment))
    value = factory.attribution(world.distribution)
    with pytest.raises(AttributionRepeated):
        authenticator.resolve(credential, f"{value}, {value}")


def routed(factory: IdentityFactory, world: World) -> tuple[str, str]:
    """The two headers of a routed request's callback."""
    return factory.authorization(world.deployment), factory.attribution(world.distribution)


def test_an_attribution_dies_with_its_principal_and_lives_again_with_it(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    authenticator = factory.authenticator()
    authorization, attribution = routed(factory, world)
    with database.transaction() as session:
        disable_identity(session, actor=OPERATOR, identity_id=world.principal_id)
    with pytest.raises(AttributionInvalid):
        authenticator.resolve(authenticator.authenticate(authorization), attribution)
    with database.transaction() as session:
        enable_identity(session, actor=OPERATOR, identity_id=world.principal_id)
    assert authenticator.resolve(authenticator.authenticate(authorization), attribution).owner is not None


def test_an_attribution_dies_with_its_distribution(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    authenticator = factory.authenticator()
    authorization, attribution = routed(factory, world)
    with database.transaction() as session:
        disable_distribution(session, actor=OPERATOR, distribution_id=world.distribution.distribution.id)
    with pytest.raises(AttributionInvalid):
        authenticator.resolve(authenticator.authenticate(authorization), attribution)


def test_a_disabled_daemon_cannot_call_even_with_an_attribution(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    authorization = factory.authorization(world.deployment)
    with database.transaction() as session:
        disable_identity(session, actor=OPERATOR, identity_id=world.daemon_id)
    with pytest.raises(InvalidToken):
        factory.authenticator().authenticate(authorization)


def test_nobody_acts_in_a_suspended_organization(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    authenticator = factory.authenticator()
    person = factory.person(world.organization_id, Role.WORKSPACE_OWNER)
    authorizations = [factory.authorization(world.deployment), person.authorization]
    attribution = factory.attribution(world.distribution)
    with database.transaction() as session:
        suspend_organization(session, actor=OPERATOR, organization_id=world.organization_id)
    for authorization in authorizations:
        credential = authenticator.authenticate(authorization)
        with pytest.raises(OrganizationSuspended):
            authenticator.resolve(credential, None)
    with pytest.raises(OrganizationSuspended):
        authenticator.resolve(authenticator.authenticate(authorizations[0]), attribution)


def test_the_payer_of_an_attribution_pays_and_must_not_be_suspended(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    payer = factory.organization("Payer")
    minted = attribute(factory, world, payer_id=payer.id)
    authenticator = factory.authenticator()
    credential = authenticator.authenticate(factory.authorization(world.deployment))
    caller = authenticator.resolve(credential, minted.value)
    assert (caller.payer_id, caller.organization_id) == (payer.id, world.organization_id)
    with database.transaction() as session:
        suspend_organization(session, actor=OPERATOR, organization_id=payer.id)
    with pytest.raises(OrganizationSuspended):
        authenticator.resolve(credential, minted.value)


def test_a_distributions_token_is_recognized_and_resolves_to_no_caller(
    factory: IdentityFactory, world: World
) -> None:
    authenticator = factory.authenticator()
    credential = authenticator.authenticate(f"Bearer {world.distribution.token.value}")
    assert credential.distribution is not None
    assert credential.distribution.principal_id == world.principal_id
    with pytest.raises(PermissionDenied):
        authenticator.resolve(credential, None)


def test_a_user_acts_in_the_active_organization_and_owns_nothing(
    factory: IdentityFactory, world: World
) -> None:
    authenticator = factory.authenticator()
    person = factory.person(world.organization_id, Role.WORKSPACE_ADMIN)
    caller = authenticator.resolve(authenticator.authenticate(person.authorization), None)
    assert (caller.executor.kind, caller.executor.id) == (ExecutorKind.USER, person.user_id)
    assert caller.owner is None
    assert caller.organization_id == caller.payer_id == world.organization_id


def test_a_user_without_an_active_organization_has_no_payer_and_no_permissions(
    factory: IdentityFactory, world: World
) -> None:
    authenticator = factory.authenticator()
    caller = authenticator.resolve(authenticator.authenticate(factory.operator().authorization), None)
    assert caller.organization_id is None
    assert caller.payer_id is None
    assert caller.permissions_on(organization_id=world.organization_id) == frozenset()


def test_a_daemon_may_all_but_delete_over_every_owner_of_its_organization(
    factory: IdentityFactory, world: World
) -> None:
    authenticator = factory.authenticator()
    caller = authenticator.resolve(authenticator.authenticate(factory.authorization(world.deployment)), None)
    for owner_id in (world.daemon_id, world.principal_id):
        held = caller.permissions_on(organization_id=world.organization_id, owner_id=owner_id)
        assert held == ROLE_PERMISSIONS[Role.PROJECT_AGENT]
        assert Permission.FILE_DELETE not in held


def test_a_daemon_holds_nothing_in_another_organization(factory: IdentityFactory, world: World) -> None:
    other = make_world(factory)
    authenticator = factory.authenticator()
    caller = authenticator.resolve(authenticator.authenticate(factory.authorization(world.deployment)), None)
    held = caller.permissions_on(organization_id=other.organization_id, owner_id=other.principal_id)
    assert held == frozenset()


def test_a_role_over_one_owner_reaches_that_owner_only(factory: IdentityFactory, world: World) -> None:
    other = factory.principal(world.organization_id)
    factory.bind_identity(
        world.organization_id, world.daemon_id, Role.WORKSPACE_ADMIN, over=world.principal_id
    )
    authenticator = factory.authenticator()
    caller = authenticator.resolve(authenticator.authenticate(factory.authorization(world.deployment)), None)
    over = {
        owner_id: caller.permissions_on(organization_id=world.organization_id, owner_id=owner_id)
        for owner_id in (world.principal_id, other.id)
    }
    assert Permission.FILE_DELETE in over[world.principal_id]
    assert Permission.FILE_DELETE not in over[other.id]
    assert Permission.MEMBER_MANAGE not in over[world.principal_id]


def test_removed_role_is_effective_at_the_next_call(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    authorization = factory.authorization(world.deployment)
    with database.transaction() as session:
        page = list_role_bindings(session, actor=OPERATOR, organization_id=world.organization_id)
        for binding in page.items:
            if binding.subject_identity_id == world.daemon_id:
                unbind_role(session, actor=OPERATOR, binding_id=binding.id)
    authenticator = factory.authenticator()
    caller = authenticator.resolve(authenticator.authenticate(authorization), None)
    assert (
        caller.permissions_on(organization_id=world.organization_id, owner_id=world.daemon_id) == frozenset()
    )


def test_a_narrow_scope_narrows_what_the_roles_allow(factory: IdentityFactory, world: World) -> None:
    authenticator = factory.authenticator()
    authorization = factory.authorization(world.deployment, "FileRead model.execute")
    caller = authenticator.resolve(authenticator.authenticate(authorization), None)
    held = caller.permissions_on(organization_id=world.organization_id, owner_id=world.daemon_id)
    assert held == {Permission.FILE_READ, Permission.MODEL_EXECUTE}
