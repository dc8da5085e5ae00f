"""The code of the release before works on the new schema: whatever it relies on is still so.

A migration that has to break it is done over two releases: the first stops using the thing, the second drops it.
"""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from sqlalchemy import Engine, create_engine, text

from deploy.embedded.postgres import EmbeddedPostgres
from tests.support.data.schema_contract import breaks, describe, read_released

VOID = "DROP FUNCTION credits_void; CREATE FUNCTION credits_void"
ENTER = """
DROP FUNCTION credits_enter;
CREATE FUNCTION credits_enter(
    p_organization_id uuid, p_kind text, p_reference text, p_amount bigint, OUT entry ledger_entries, OUT is_new boolean
) LANGUAGE sql AS 'SELECT NULL::ledger_entries, true'
"""
WIDENED = {
    "TRIGGER note_words": "writes the words that a file is found by, and lets every version pass",
    "blob_stores: CHECK ((number = ANY": "takes a second store besides",
    "media_imports: CHECK ((state = ANY": "takes `Held` besides",
    "media_imports: CHECK (((state <> ALL": "asks a code of `Held` too, which the release before does not write",
    "media_imports: CHECK (((state <> 'Stored'": "lets one that failed keep its headers",
    "behaviors: CHECK ((kind = ANY": "takes `remote` besides",
    "ix_deliveries_order": "holds rows with a place alone, which the release before gives none",
    "uq_users_email": "tells addresses apart that Unicode would fold together",
    "uq_usage_hours_group": "tells more groups apart, and `credits_roll_up` alone names it",
}
"""New forms of a condition, each with the reason why it refuses nothing that the one of before let pass."""


@pytest.fixture(scope="module")
def migrated(postgres_server: EmbeddedPostgres, migrated_template: str) -> Iterator[Engine]:
    """A database of the newest schema, as the role that migrates."""
    name = f"test_{uuid4().hex}"
    postgres_server.create_database(name, template=migrated_template)
    url = postgres_server.migrations_url(name)
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg2://", 1))
    yield engine
    engine.dispose()


def broken_by(engine: Engine, change: str) -> list[str]:
    """What of today's schema a change breaks, which is taken back."""
    with engine.connect() as connection:
        before = describe(connection)
        connection.execute(text(change))
        found = breaks(before, describe(connection))
        connection.rollback()
    return found


def test_the_release_before_finds_what_it_relies_on(migrated: Engine) -> None:
    with migrated.connect() as connection:
        found = breaks(read_released(), describe(connection))
    assert [problem for problem in found if not any(condition in problem for condition in WIDENED)] == []


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE files DROP COLUMN state CASCADE",
        "ALTER TABLE files RENAME COLUMN retention_expires_at TO expires_at",
        "ALTER TABLE deliveries RENAME TO notifications",
        "ALTER TABLE invocations ALTER COLUMN hold TYPE numeric",
        "ALTER TABLE invocations ADD COLUMN surcharge bigint NOT NULL",
        "ALTER TABLE invocations ALTER COLUMN streamed_tokens DROP DEFAULT",
        "ALTER TABLE invocations ALTER COLUMN provider SET NOT NULL",
        "ALTER TABLE invocations ADD CHECK (hold > 0)",
        "ALTER TABLE invocations ADD COLUMN extra bigint CHECK (extra IS NOT NULL OR hold = 0)",
        "ALTER TABLE invocations ADD FOREIGN KEY (organization_id) REFERENCES organizations (id)",
        "CREATE UNIQUE INDEX ON invocations (request_hash)",
        "ALTER TABLE usage_hours DROP CONSTRAINT uq_usage_hours_group",
        "CREATE TRIGGER no_more BEFORE INSERT ON usage_records FOR EACH ROW EXECUTE FUNCTION refuse_ledger_change()",
        "DROP FUNCTION credits_void",
        f"{VOID}(p_id uuid, p_reason text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        f"{VOID}(p_id uuid) RETURNS bigint LANGUAGE sql AS 'SELECT 1'",
        ENTER,
    ],
)
def test_a_migration_that_breaks_the_release_before_is_found(migrated: Engine, change: str) -> None:
    assert broken_by(migrated, change)


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE more (id uuid PRIMARY KEY, hold bigint NOT NULL CHECK (hold > 0))",
        "ALTER TABLE invocations ADD COLUMN surcharge bigint NOT NULL DEFAULT 0 CHECK (surcharge >= 0)",
        "ALTER TABLE invocations ADD COLUMN reason text",
        "ALTER TABLE invocations DROP CONSTRAINT ck_invocations_hold",
        "CREATE INDEX ON invocations (model)",
        f"{VOID}(p_id uuid, p_more int DEFAULT 1) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
    ],
)
def test_a_migration_that_only_adds_is_let_pass(migrated: Engine, change: str) -> None:
    assert broken_by(migrated, change) == []
