"""What the tests of credits share: an organization of its own for each, and how a call goes."""

import pytest

from shared.db.database import Database
from tests.shared.credits.calls import Calls
from tests.support.identity import IdentityFactory, make_settings


@pytest.fixture
def factory(database: Database) -> IdentityFactory:
    return IdentityFactory(database, make_settings())


@pytest.fixture
def calls(database: Database, factory: IdentityFactory) -> Calls:
    """Calls of a new organization without credits."""
    return Calls(database, factory.organization().id)
