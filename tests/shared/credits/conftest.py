"""Fixtures of the tests of credits: an organization per test."""

import pytest

from shared.db.database import Database
from tests.shared.credits.calls import Calls
from tests.support.data.identity import IdentityFactory, make_settings


@pytest.fixture
def factory(database: Database) -> IdentityFactory:
    return IdentityFactory(database, make_settings())


@pytest.fixture
def calls(database: Database, factory: IdentityFactory) -> Calls:
    """Return the calls of a new organization without credits."""
    return Calls(database, factory.organization().id)
