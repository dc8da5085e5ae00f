"""A receiver whose organization owes for storage beyond its grace imports nothing more until it has credits again."""

import pytest

from shared.credits.errors import StorageUnpaid
from shared.db.database import Database
from shared.media.importing.authority import authorize_import
from tests.shared.credits.calls import Calls
from tests.support.data.identity import IdentityFactory, make_settings

OWES = (
    "UPDATE credit_balances SET posted = -1, storage_overdue_since = now() - interval '15 days',"
    " storage_refused_from = now() - interval '1 day' WHERE organization_id = :id"
)


def test_imports_are_refused_while_storage_is_unpaid(database: Database) -> None:
    factory = IdentityFactory(database, make_settings())
    organization_id = factory.organization().id
    distribution = factory.distribution(
        organization_id,
        principal_id=factory.principal(organization_id).id,
        deployment_id=factory.deployment(organization_id).deployment.id,
    ).distribution
    calls = Calls(database, organization_id)
    calls.top_up(1)
    calls.run(OWES, id=organization_id)
    with database.autocommit() as session, pytest.raises(StorageUnpaid):
        authorize_import(session, distribution.id)
    calls.top_up(1)
    with database.autocommit() as session:
        assert authorize_import(session, distribution.id).organization_id == organization_id
