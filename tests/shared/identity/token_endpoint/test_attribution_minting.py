"""A distribution mints attributions only for its own deployment, principal and organization."""

import pytest

from shared.db.database import Database
from shared.errors import PermissionDenied, ValidationFailed
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.claims import ReportedCaller
from shared.identity.directory.deployments import disable_deployment
from shared.identity.directory.identities import disable_identity
from shared.identity.directory.organizations import suspend_organization
from shared.identity.errors import AttributionInvalid, OrganizationSuspended, TargetDisabled
from shared.identity.token_endpoint.attribution_minting import mint_attribution
from shared.identity.tokens.usage_attribution import verify_usage_attribution
from tests.shared.identity.conftest import World, attribute
from tests.support.data.identity import IdentityFactory


def test_a_minted_attribution_says_where_it_leads(factory: IdentityFactory, world: World) -> None:
    claims = verify_usage_attribution(factory.keys, factory.settings, factory.attribution(world.distribution))
    assert claims.principal_id == world.principal_id
    assert claims.deployment_id == world.deployment.deployment.id
    assert claims.payer_id == world.organization_id
    assert claims.distribution_id == world.distribution.distribution.id
    assert claims.reported_caller == ReportedCaller(id="U123", display="Ada")


def test_only_a_distributions_token_mints(factory: IdentityFactory, world: World) -> None:
    authenticator = factory.authenticator()
    person = factory.person(world.organization_id)
    for authorization in (factory.authorization(world.deployment), person.authorization):
        credential = authenticator.authenticate(authorization)
        with pytest.raises(PermissionDenied):
            mint_attribution(factory.keys, factory.settings, credential)


def test_nothing_is_minted_for_what_is_disabled(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    with database.transaction() as session:
        disable_identity(session, actor=OPERATOR, identity_id=world.principal_id)
    with pytest.raises(TargetDisabled):
        factory.attribution(world.distribution)


def test_nothing_is_minted_for_a_disabled_deployment(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    with database.transaction() as session:
        disable_deployment(session, actor=OPERATOR, deployment_id=world.deployment.deployment.id)
    with pytest.raises(TargetDisabled):
        factory.attribution(world.distribution)


def test_nothing_is_minted_in_a_suspended_organization(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    with database.transaction() as session:
        suspend_organization(session, actor=OPERATOR, organization_id=world.organization_id)
    with pytest.raises(OrganizationSuspended):
        factory.attribution(world.distribution)


@pytest.mark.parametrize("text", ["", "x" * 201])
def test_reported_values_of_an_attribution_are_bounded(
    factory: IdentityFactory, world: World, text: str
) -> None:
    credential = factory.authenticator().authenticate(f"Bearer {world.distribution.token.value}")
    reports: list[dict[str, object]] = [
        {"message_id": text},
        {"channel": text},
        {"reported_caller": ReportedCaller(id=text)},
        {"reported_caller": ReportedCaller(id="U1", display=text)},
    ]
    for report in reports:
        with pytest.raises(ValidationFailed):
            mint_attribution(factory.keys, factory.settings, credential, **report)  # type: ignore[arg-type]


def test_attribution_that_is_too_long_is_not_minted(factory: IdentityFactory, world: World) -> None:
    credential = factory.authenticator().authenticate(f"Bearer {world.distribution.token.value}")
    with pytest.raises(ValidationFailed):
        mint_attribution(
            factory.keys,
            factory.settings,
            credential,
            message_id="🦆" * 200,
            reported_caller=ReportedCaller(id="🦆" * 200, display="🦆" * 200),
        )


def test_an_expired_attribution_is_invalid(factory: IdentityFactory, world: World) -> None:
    spent = factory.settings.model_copy(update={"attribution_seconds": -1})
    attribution = IdentityFactory(factory.database, spent).attribution(world.distribution)
    authenticator = factory.authenticator()
    credential = authenticator.authenticate(factory.authorization(world.deployment))
    with pytest.raises(AttributionInvalid):
        authenticator.resolve(credential, attribution)


def test_the_schedule_may_attribute_to_the_daemon_itself(factory: IdentityFactory, world: World) -> None:
    minted = attribute(factory, world, principal_id=world.daemon_id, transaction_id="0193-schedule")
    authenticator = factory.authenticator()
    credential = authenticator.authenticate(factory.authorization(world.deployment))
    caller = authenticator.resolve(credential, minted.value)
    assert caller.owner is not None
    assert caller.owner.id == caller.executor.id == world.daemon_id
    assert (caller.transaction_id, caller.reported_caller) == ("0193-schedule", None)
