from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import Engine, create_engine, inspect, text

import shared.credits
from deploy.embedded.postgres import EmbeddedPostgres
from shared.credits.tables import (
    credit_balances,
    invocations,
    ledger_entries,
    storage_days,
    storage_mark,
    usage_hours,
    usage_records,
    usage_rollup,
)
from shared.migrations.runner import downgrade, migrate

TABLES = (credit_balances, invocations, ledger_entries, usage_hours, usage_records, usage_rollup)
SOURCES = Path(shared.credits.__file__).with_name("sql")
STORAGE_TABLES = (storage_days, storage_mark)


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
    for table in (*TABLES, *STORAGE_TABLES):
        made = {
            column["name"]: (str(column["type"]), column["nullable"])
            for column in inspector.get_columns(table.name)
        }
        known = {
            column.name: (
                column.type.compile(engine.dialect).replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMP"),
                bool(column.nullable),
            )
            for column in table.columns
        }
        assert made == known, table.name
        assert {index["name"] for index in inspector.get_indexes(table.name)} >= {
            index.name for index in table.indexes
        }


def test_the_migration_goes_back_and_forth_and_leaves_nothing_behind(engine: Engine) -> None:
    migrate(engine, "0002")
    before = _functions(engine)
    migrate(engine, "0003")
    downgrade(engine, "0002")
    assert _functions(engine) == before
    assert not {table.name for table in TABLES} & set(inspect(engine).get_table_names())
    migrate(engine, "0003")


def test_the_migration_of_storage_puts_back_what_it_changed(engine: Engine) -> None:
    migrate(engine, "0005")
    before = _definition(engine, "credits_post"), _functions(engine)
    migrate(engine, "0006")
    assert _definition(engine, "credits_post") != before[0]
    downgrade(engine, "0005")
    assert (_definition(engine, "credits_post"), _functions(engine)) == before


def _definition(engine: Engine, function: str) -> str:
    with engine.connect() as connection:
        found = connection.execute(
            text("SELECT pg_get_functiondef(CAST(:name AS regproc))"), {"name": function}
        )
        return str(found.scalar())


def _functions(engine: Engine) -> set[str]:
    with engine.connect() as connection:
        found = connection.execute(
            text("SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace")
        )
        return set(found.scalars())


def test_functions_are_those_of_their_source_files(engine: Engine) -> None:
    migrate(engine)
    sources = sorted(SOURCES.glob("*.sql"))
    made = {source.stem: _definition(engine, source.stem) for source in sources}
    with engine.begin() as connection:
        for source in sources:
            connection.exec_driver_sql(source.read_text().replace("%", "%%"))
    assert {source.stem: _definition(engine, source.stem) for source in sources} == made
    assert len(made) >= 6


def test_the_migration_of_call_shares_counts_open_calls_and_puts_back_what_it_changed(engine: Engine) -> None:
    migrate(engine, "0011")
    changed = ("credits_post", "credits_hold", "credits_void", "credits_charge", "credits_release_overdue")
    before = {name: _definition(engine, name) for name in changed}, _functions(engine)
    organization_id = uuid4()
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO organizations (id, name) VALUES (:id, 'one');"
                "INSERT INTO credit_balances (organization_id, posted) VALUES (:id, 100);"
            ),
            {"id": organization_id},
        )
        for _ in range(2):
            connection.execute(
                text(
                    "SELECT credits_hold(p_id => gen_random_uuid(), p_organization_id => :id, p_hold => 1,"
                    " p_lease => '1 hour', p_model => 'm', p_prompt_price => 1, p_completion_price => 1,"
                    " p_estimated_prompt_tokens => 1, p_request_hash => NULL, p_user_id => NULL,"
                    " p_identity_id => NULL, p_principal_id => NULL, p_deployment_id => NULL)"
                ),
                {"id": organization_id},
            )
    migrate(engine, "0012")
    with engine.connect() as connection:
        assert connection.execute(text("SELECT calls FROM credit_balances")).scalars().all() == [2]
    downgrade(engine, "0011")
    assert ({name: _definition(engine, name) for name in changed}, _functions(engine)) == before
