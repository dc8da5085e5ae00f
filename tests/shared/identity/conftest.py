"""Fixtures of the tests of identity: a database per module, settings without caches, and a factory of rows."""

from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest

from shared.config.settings import Settings
from shared.db.database import Database
from shared.identity.directory.deployments import CreatedDeployment
from shared.identity.directory.distributions import CreatedDistribution
from shared.identity.tokens.usage_attribution import Attribution, MintedAttribution, mint_usage_attribution
from tests.support.data.identity import IdentityFactory, make_settings


@dataclass(frozen=True, kw_only=True)
class World:
    """An organization with a deployment, and a distribution that routes to it."""

    organization_id: UUID
    deployment: CreatedDeployment
    distribution: CreatedDistribution
    principal_id: UUID
    daemon_id: UUID


def attribute(factory: IdentityFactory, world: World, **changes: Any) -> MintedAttribution:
    """Mint an attribution for the world's daemon without a distribution."""
    attribution = Attribution(
        principal_id=world.principal_id,
        daemon_id=world.daemon_id,
        deployment_id=world.deployment.deployment.id,
        version_id=None,
        payer_id=world.organization_id,
        distribution_id=None,
        transaction_id="txn",
        channel=None,
        message_id=None,
        reported_caller=None,
    )
    return mint_usage_attribution(factory.keys, factory.settings, replace(attribution, **changes))


@pytest.fixture
def settings() -> Settings:
    return make_settings()


@pytest.fixture
def factory(database: Database, settings: Settings) -> IdentityFactory:
    return IdentityFactory(database, settings)


@pytest.fixture
def world(factory: IdentityFactory) -> World:
    return make_world(factory)


def make_world(factory: IdentityFactory) -> World:
    organization = factory.organization()
    deployment = factory.deployment(organization.id)
    principal = factory.principal(organization.id)
    distribution = factory.distribution(
        organization.id, principal_id=principal.id, deployment_id=deployment.deployment.id
    )
    return World(
        organization_id=organization.id,
        deployment=deployment,
        distribution=distribution,
        principal_id=principal.id,
        daemon_id=deployment.deployment.daemon_identity_id,
    )
