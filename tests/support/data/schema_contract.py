"""What the previous release's code relies on in the schema, and which parts of it a newer schema breaks.

Processes of the previous release run while the schema is migrated, and a rollback returns to them. Its tables must
therefore keep their columns, its statements may still omit the same columns, no constraint may refuse its rows, and
its function calls must resolve. `python -m tests.support.data.schema_contract` writes what the current code relies on;
run it in the commit of a release. This does not detect rows that a migration rewrites, or columns that change their
meaning.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, text

from deploy.embedded.postgres import EmbeddedPostgres
from shared.migrations.runner import migrate

RELEASED = Path(__file__).parents[1] / "released_schema.json"
Contract = dict[str, Any]

_PARTS = {
    "columns": """
        SELECT t.relname || '.' || a.attname, jsonb_build_object('type', format_type(a.atttypid, a.atttypmod),
            'may_be_null', NOT a.attnotnull, 'may_be_left_out', NOT a.attnotnull OR a.atthasdef)
        FROM pg_attribute a JOIN pg_class t ON t.oid = a.attrelid
        WHERE t.relnamespace = 'public'::regnamespace AND t.relkind = 'r' AND t.relname <> 'alembic_version'
            AND a.attnum > 0 AND NOT a.attisdropped
    """,
    # ON CONFLICT can name a unique index.
    "keys": """
        SELECT indexname, to_jsonb(indexdef) FROM pg_indexes
        WHERE schemaname = 'public' AND tablename <> 'alembic_version' AND indexdef LIKE 'CREATE UNIQUE INDEX %'
    """,
    "conditions": """
        SELECT conrelid::regclass || ': ' || pg_get_constraintdef(c.oid), (
            SELECT jsonb_agg(conrelid::regclass || '.' || attname) FROM pg_attribute
            WHERE attrelid = conrelid AND attnum = ANY(conkey)
        )
        FROM pg_constraint c WHERE connamespace = 'public'::regnamespace AND contype IN ('c', 'f')
        UNION ALL
        SELECT tgrelid::regclass || ': ' || pg_get_triggerdef(oid), jsonb_build_array(tgrelid::regclass || '.*')
        FROM pg_trigger WHERE NOT tgisinternal
    """,
    "functions": """
        SELECT p.proname, jsonb_build_object('gives', pg_get_function_result(p.oid) || coalesce((
            SELECT ': ' || string_agg(
                p.proargnames[at] || ' ' || format_type(p.proallargtypes[at], NULL), ', ' ORDER BY at
            )
            FROM generate_series(1, cardinality(p.proallargtypes)) AS at WHERE p.proargmodes[at] <> 'i'
        ), ''), 'takes', (
            SELECT coalesce(jsonb_agg(jsonb_build_array(p.proargnames[at], format_type(p.proargtypes[at - 1], NULL),
                at > p.pronargs - p.pronargdefaults) ORDER BY at), '[]') FROM generate_series(1, p.pronargs) AS at
        ))
        FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace
    """,
}


def describe(connection: Connection) -> Contract:
    """Return the contract of a schema."""
    return {
        part: {row[0]: row[1] for row in connection.execute(text(statement))}
        for part, statement in _PARTS.items()
    }


def read_released() -> Contract:
    """Return the contract of the previous release."""
    contract: Contract = json.loads(RELEASED.read_text())
    return contract


def breaks(before: Contract, after: Contract) -> list[str]:
    """Return what code for the schema `before` would miss in the schema `after`, or be refused by it."""
    return [*_lost_columns(before, after), *_refusals(before, after), *_lost_functions(before, after)]


def _lost_columns(before: Contract, after: Contract) -> Iterator[str]:
    for name, was in before["columns"].items():
        now = after["columns"].get(name)
        if now is None:
            yield f"{name} is gone"
        elif now["type"] != was["type"]:
            yield f"{name} is {now['type']} and was {was['type']}"
    for name in before["keys"].keys() - after["keys"].keys():
        yield f"{name}, which an ON CONFLICT may name, is gone"


def _refusals(before: Contract, after: Contract) -> Iterator[str]:
    tables = {name.partition(".")[0] for name in before["columns"]}
    for name, now in after["columns"].items():
        was = before["columns"].get(name, {"may_be_null": False, "may_be_left_out": True})
        if name.partition(".")[0] in tables:
            if was["may_be_left_out"] and not now["may_be_left_out"]:
                yield f"{name} must be given"
            if was["may_be_null"] and not now["may_be_null"]:
                yield f"{name} may not be null"
    for name, definition in after["keys"].items():
        table = definition.partition(" ON public.")[2].partition(" ")[0]
        if table in tables and before["keys"].get(name) != definition:
            yield f"{name} is new or differs, and may refuse rows"
    for condition, columns in after["conditions"].items():
        is_new = condition not in before["conditions"] and condition.partition(":")[0] in tables
        if is_new and not (
            columns and before["columns"].keys().isdisjoint(columns) and ".*" not in columns[0]
        ):
            yield f"{condition} is new or differs, and may refuse rows"


def _lost_functions(before: Contract, after: Contract) -> Iterator[str]:
    for name, was in before["functions"].items():
        now = after["functions"].get(name)
        if now is None:
            yield f"{name}() is gone"
            continue
        known = len(was["takes"])
        if now["takes"][:known] != was["takes"] or not all(argument[2] for argument in now["takes"][known:]):
            yield f"{name}() takes other arguments"
        if now["gives"] != was["gives"]:
            yield f"{name}() gives {now['gives']} and gave {was['gives']}"


def main() -> None:
    """Write what the current code relies on."""
    with tempfile.TemporaryDirectory() as directory:
        server = EmbeddedPostgres(Path(directory), durable=False)
        server.start()
        server.create_database("released")
        url = server.migrations_url("released").replace("postgresql://", "postgresql+psycopg2://", 1)
        engine = create_engine(url)
        migrate(engine)
        with engine.connect() as connection:
            contract = describe(connection)
        engine.dispose()
        server.stop()
    parts = (f"{json.dumps(part)}: {{\n{_lines(entries)}\n}}" for part, entries in contract.items())
    RELEASED.write_text("{\n" + ",\n".join(parts) + "\n}\n")
    sys.stdout.write(
        f"{RELEASED}: {len(contract['columns'])} columns, {len(contract['functions'])} functions\n"
    )


def _lines(entries: Contract) -> str:
    return ",\n".join(f"{json.dumps(name)}: {json.dumps(entries[name])}" for name in sorted(entries))


if __name__ == "__main__":
    main()
