"""An organization and its owner."""

from uuid import UUID

import pytest

from shared.identity.access.roles import Role
from tests.support.data.identity import Person
from tests.support.web.web_process import Front


@pytest.fixture
def organization_id(front: Front) -> UUID:
    return front.identity.organization().id


@pytest.fixture
def owner(front: Front, organization_id: UUID) -> Person:
    return front.identity.person(organization_id, Role.WORKSPACE_OWNER)
