"""Every migration takes the rows of the schema before it, and an upgrade from any of them keeps what was there."""

from sqlalchemy import Engine

from shared.migrations.runner import NEWEST, migrate
from tests.shared.migrations.test_migrations import revisions
from tests.support.data.representative_rows import Shape, add_rows, count_rows

FIRST, STEP = 3, 4
"""From the first schema that has an installation, rows are added every few: each migration meets some."""


def test_every_migration_takes_the_rows_of_the_schema_before_it(empty_engine: Engine) -> None:
    """One database goes through all schemas, and gets rows in each: so it has rows of every age in the end."""
    before: dict[str, int] = {}
    shapes: dict[str, Shape] = {}
    for revision in [*revisions()[FIRST::STEP], NEWEST]:
        migrate(empty_engine, revision)
        with empty_engine.begin() as connection:
            after = count_rows(connection)
            lost = {name for name, count in before.items() if after.get(name, count) < count}
            assert lost == set(), f"{revision} loses rows"
            add_rows(connection, shapes)
            before = count_rows(connection)
    assert [name for name, count in before.items() if count == 0] == [], "no row could be made for these"
    assert before["organizations"] > len(revisions()) // STEP
