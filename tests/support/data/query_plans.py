"""Read the executed plan of a statement: the kinds of its nodes, the rows it discarded, and the pages it touched."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import event, text

from shared.db.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The executed plan of one statement."""

    node_types: frozenset[str]
    indexes: frozenset[str]
    rows_removed: int
    blocks: int


def explain(database: Database, statement: str, values: Mapping[str, Any] | None = None) -> Plan:
    """Run a statement with EXPLAIN ANALYZE, and roll it back."""
    explained = text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}")
    with database.engine.connect() as connection, connection.begin() as transaction:
        plan = connection.execute(explained, values or {}).scalar_one()
        transaction.rollback()
    return _read(plan[0]["Plan"])


def _read(root: dict[str, Any]) -> Plan:
    nodes = list(_walk(root))
    return Plan(
        node_types=frozenset(node["Node Type"] for node in nodes),
        indexes=frozenset(node["Index Name"] for node in nodes if "Index Name" in node),
        rows_removed=sum(node.get("Rows Removed by Filter", 0) for node in nodes),
        blocks=root["Shared Hit Blocks"] + root["Shared Read Blocks"],
    )


def _walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _walk(child)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement as the driver received it."""

    text: str
    parameters: Any


@contextmanager
def recorded_statements(
    database: Database, *, beginning: tuple[str, ...] = ("",)
) -> Iterator[list[Statement]]:
    """Record the statements that SQLAlchemy runs within the block, if they begin with one of these words."""
    kept: list[Statement] = []

    def keep(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.lstrip().upper().startswith(beginning):
            kept.append(Statement(text=statement, parameters=parameters))

    event.listen(database.engine, "before_cursor_execute", keep)
    try:
        yield kept
    finally:
        event.remove(database.engine, "before_cursor_execute", keep)


def rows_read(database: Database, statement: Statement) -> tuple[int, str]:
    """Run a query, and return the number of rows its plan read from tables, used or not, and the plan."""
    explained = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.text}"
    with database.engine.connect() as connection:
        root = connection.exec_driver_sql(explained, statement.parameters).scalar_one()[0]["Plan"]
    steps = [f"{node['Node Type']} {node.get('Relation Name', '')} {_read_by(node)}" for node in _walk(root)]
    return sum(_read_by(node) for node in _walk(root)), "\n".join([statement.text, *steps])


def rows_expected(database: Database, statement: Statement, table: str) -> tuple[int, str]:
    """Return the number of rows of a table that a query's plan expects to read, and the plan; run nothing."""
    with database.engine.connect() as connection:
        root = connection.exec_driver_sql(
            f"EXPLAIN (FORMAT JSON) {statement.text}", statement.parameters
        ).scalar_one()[0]["Plan"]
    scans = [node for node in _walk(root) if node.get("Relation Name") == table]
    steps = [f"{node['Node Type']} {node['Plan Rows']}" for node in scans]
    return sum(node["Plan Rows"] for node in scans), "\n".join([statement.text, *steps])


def _read_by(node: Mapping[str, Any]) -> int:
    if "Relation Name" not in node or not node["Node Type"].endswith("Scan"):
        return 0
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return int((node["Actual Rows"] + removed) * node["Actual Loops"])
