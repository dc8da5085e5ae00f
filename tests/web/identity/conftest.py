"""An organization and its owner."""

from uuid import UUID

import pytest

from shared.identity.access.roles import Role
from tests.support.front import Front
from tests.support.identity import Person


@pytest.fixture
def organization_id(front: Front) -> UUID:
    return front.identity.organization().id


@pytest.fixture
def owner(front: Front, organization_id: UUID) -> Person:
    return front.identity.person(organization_id, Role.WORKSPACE_OWNER)
