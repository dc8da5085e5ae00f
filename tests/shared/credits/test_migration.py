"""The migrations create the ledger's tables, and compute new columns from older rows."""

from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from sqlalchemy import Engine, Table, create_engine, inspect, text

from deploy.embedded.postgres import EmbeddedPostgres
from shared.credits import tables
from shared.credits.storage_billing import storage_tables
from shared.migrations.runner import migrate

TABLES = [
    table
    for module in (tables, storage_tables)
    for table in vars(module).values()
    if isinstance(table, Table)
]


@pytest.fixture
def engine(postgres_server: EmbeddedPostgres) -> Iterator[Engine]:
    postgres_server.create_database(name := f"migration_{uuid4().hex}")
    url = postgres_server.migrations_url(name)
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg2://", 1))
    yield engine
    engine.dispose()


def test_the_migrations_make_the_tables_that_the_code_knows(engine: Engine) -> None:
    migrate(engine)
    inspector = inspect(engine)
    assert len(TABLES) >= 15
    for table in TABLES:
        made = {
            column["name"]: (column["type"].compile(engine.dialect), column["nullable"])
            for column in inspector.get_columns(table.name)
        }
        known = {
            column.name: (
                column.type.compile(engine.dialect),
                bool(column.nullable),
            )
            for column in table.columns
        }
        assert made == known, table.name
        assert {index["name"] for index in inspector.get_indexes(table.name)} >= {
            index.name for index in table.indexes
        }


def test_the_migration_of_call_shares_counts_open_calls(engine: Engine) -> None:
    migrate(engine, "0011")
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO organizations (id, name) VALUES (:id, 'one');"
                "INSERT INTO credit_balances (organization_id, posted) VALUES (:id, 100);"
                "INSERT INTO invocations (id, organization_id, state, hold, model, prompt_price, completion_price,"
                " estimated_prompt_tokens, lease_until) SELECT gen_random_uuid(), :id, state, 1, 'm', 1, 1, 1, now()"
                " FROM unnest(ARRAY['held', 'dispatched', 'settled']) AS state"
            ),
            {"id": uuid4()},
        )
    migrate(engine, "0012")
    with engine.connect() as connection:
        assert connection.execute(text("SELECT calls FROM credit_balances")).scalars().all() == [2]


def test_usage_migrations_keep_hours_sum_days_and_accept_old_holds(
    engine: Engine,
) -> None:
    migrate(engine, "0036")
    organization = uuid4()
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO organizations (id, name) VALUES (:id, 'one');"
                "INSERT INTO credit_balances (organization_id, posted) VALUES (:id, 100);"
                "INSERT INTO usage_hours (organization_id, hour, model, invocations, prompt_tokens, completion_tokens,"
                " cached_tokens, reasoning_tokens, cost) VALUES (:id, '2026-01-01T10:00Z', 'm', 1, 2, 3, 0, 0, 4)"
            ),
            {"id": organization},
        )
    with engine.begin() as connection:
        connection.execute(text("UPDATE usage_rollup SET rolled_up_to = '2026-01-02T00:10Z'"))
    migrate(engine)
    with engine.begin() as connection:
        days = connection.execute(text("SELECT day, cost, api_key_id FROM usage_days")).all()
        hours = connection.execute(text("SELECT cost, api_key_id, distribution_id FROM usage_hours")).all()
        held = connection.execute(
            text(
                "SELECT result FROM credits_hold(p_id => gen_random_uuid(), p_organization_id => :id, p_hold => 5,"
                " p_lease => interval '1 min', p_model => 'm', p_prompt_price => 1, p_completion_price => 1,"
                " p_estimated_prompt_tokens => 1, p_request_hash => NULL, p_user_id => NULL, p_identity_id => NULL,"
                " p_principal_id => NULL, p_deployment_id => NULL, p_share => NULL, p_provider => 'p')"
            ),
            {"id": organization},
        ).scalar_one()
    assert [tuple(day) for day in days] == [(datetime(2026, 1, 1, tzinfo=UTC), 4, None)]
    assert ([tuple(hour) for hour in hours], held) == ([(4, None, None)], "held")
