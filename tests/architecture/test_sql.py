"""Each form of SQL stands only where docs/style.md#sql permits it, and migrations have no downgrade."""

import re
from pathlib import Path

from tests.support.processes.collected_cases import found

ROOT = Path(__file__).parents[2]
PRODUCT = sorted(
    path for part in ("web", "workers", "shared", "deploy") for path in (ROOT / part).rglob("*.py")
)
VERSIONS = sorted((ROOT / "shared/migrations/versions").glob("0*.py"))
DRIVERS_OWN = {
    "shared/a2a/remote/turn_rows.py",
    "shared/a2a/tasks/artifacts.py",
    "shared/a2a/tasks/events.py",
    "shared/a2a/tasks/responses.py",
    "shared/a2a/tasks/submission.py",
    "shared/a2a/tasks/snapshots.py",
    "shared/a2a/turn_state/leases.py",
    "shared/a2a/agent_turns/turn_reader.py",
    "shared/credits/open_calls.py",
    "shared/credits/sql_functions.py",
    "shared/credits/holds.py",
    "shared/db/database.py",
    "shared/fairness/fair_queueing.py",
    "shared/files/idempotency.py",
    "shared/files/staging.py",
    "shared/media/importing/authority.py",
    "shared/media/importing/claims.py",
    "shared/media/importing/imports.py",
    "shared/media/importing/import_queue.py",
    "shared/media/importing/import_notifications.py",
    "shared/db/statements.py",
}
"""Modules with statements that every model call, turn, upload or import runs."""


def using(pattern: str) -> set[str]:
    found = re.compile(pattern)
    return {str(path.relative_to(ROOT)) for path in PRODUCT if found.search(path.read_text())}


def test_only_hot_modules_use_the_drivers_form() -> None:
    assert using(r"\bfetch_(one|all)\(") == DRIVERS_OWN


def test_a_server_side_function_stands_in_a_file_of_its_domain() -> None:
    assert using(r"(?i)create\s+(or\s+replace\s+)?(function|procedure)\b") == set()


def test_sql_file_creates_the_function_it_is_named_for() -> None:
    for path in found((ROOT / "shared").glob("*/sql/*.sql")):
        assert re.findall(r"^CREATE .*?(\w+)\(", path.read_text(), re.MULTILINE) == [path.stem]


def test_no_migration_has_a_downgrade() -> None:
    assert [path.name for path in VERSIONS if "def downgrade" in path.read_text()] == []
