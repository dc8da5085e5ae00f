"""The cost of a search for names: some of the newest files, and the index's matches of the words; none of others."""

from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from shared.db.database import Database
from shared.files.filters import FileFilter
from shared.files.listing import list_files
from shared.files.resources import Availability
from shared.files.searching import SCANNED_FILES
from shared.identity.access.callers import Caller, Executor, ExecutorKind
from shared.identity.access.permissions import Permission
from tests.support.data.query_plans import recorded_statements, rows_read

FILES, PAGE = 3 * SCANNED_FILES, 10
LOOKED_AT_ROWS = 2 * SCANNED_FILES  # each file, and its words
_FILL = (
    """
INSERT INTO files (id, organization_id, payer_id, purpose, owner_kind, owner_id, state, current_version_id, revision)
SELECT uuidv7(make_interval(secs => n - :files)), :organization_id, :organization_id, 'AgentArtifact', 'DaemonIdentity',
    :organization_id, 'Available', gen_random_uuid(), 1
FROM generate_series(1, :files) AS n
""",
    """
INSERT INTO file_versions (id, file_id, revision, file_name, media_type, byte_size, content_sha256)
SELECT current_version_id, id, 1, :name || CASE row_number() OVER (ORDER BY id) WHEN 1 THEN ' oldest' ELSE '' END,
    'text/plain', 1, sha256('')
FROM files WHERE organization_id = :organization_id
""",
)


@pytest.fixture(scope="module")
def owners(database: Database) -> tuple[UUID, UUID]:
    """Two owners of many files, each in its own organization, with no word in common in their names."""
    organization_id, other = uuid4(), uuid4()
    with database.transaction() as session:
        for owner_id, name in ((organization_id, "mine"), (other, "elsewhere")):
            values = {"organization_id": str(owner_id), "name": name, "files": FILES}
            for statement in _FILL:
                casts = statement.replace(":organization_id", "CAST(:organization_id AS uuid)")
                session.execute(text(casts), values)
    for table in ("files", "file_versions", "file_words"):
        with database.transaction() as session:
            session.execute(text(f"ANALYZE {table}"))
    return organization_id, other


@pytest.fixture
def caller(owners: tuple[UUID, UUID]) -> Caller:
    """A user of the first owner's organization."""
    return make_caller(owners[0], owners[0])


def make_caller(organization_id: UUID, *scopes: UUID) -> Caller:
    return Caller(
        executor=Executor(kind=ExecutorKind.USER, id=uuid4()),
        credential_id=uuid4(),
        organization_id=organization_id,
        owner=None,
        payer_id=organization_id,
        permissions_by_scope=dict.fromkeys(scopes, frozenset({Permission.FILE_READ})),
    )


@pytest.mark.parametrize(
    ("name", "found", "by_the_index"),
    [
        ("mine", PAGE, False),
        ("oldest", 1, True),
        ("elsewhere", 0, True),
        ("els", 0, True),
        ("nowhere", 0, True),
    ],
)
def test_search_reads_some_of_the_newest_and_its_matches(
    database: Database, caller: Caller, name: str, found: int, by_the_index: bool
) -> None:
    with recorded_statements(database) as statements, database.autocommit() as session:
        page = list_files(
            session, caller, FileFilter(name=name), cursor=None, limit=PAGE, pending=Availability.AVAILABLE
        )
    assert (len(page.files), len(statements)) == (found, 2 + by_the_index)
    first, *rest = [rows_read(database, statement) for statement in statements]
    assert first[0] <= LOOKED_AT_ROWS + 50, first[1]
    for read, plan in rest:
        assert read <= 5 * (found + 1), plan


def test_search_over_several_owners_scans_the_newest_of_each(
    database: Database, owners: tuple[UUID, UUID]
) -> None:
    """Both owners have only matching files; a user with roles over more owners uses the index at once."""
    user = make_caller(uuid4(), *owners)
    wanted = FileFilter(media_type="text/plain")
    with recorded_statements(database) as statements, database.autocommit() as session:
        page = list_files(session, user, wanted, cursor=None, limit=PAGE, pending=Availability.AVAILABLE)
    read = [rows_read(database, statement) for statement in statements]
    assert (len(page.files), {file.owner_id for file in page.files}) == (PAGE, set(owners))
    assert read[0][0] <= LOOKED_AT_ROWS + SCANNED_FILES + 50, read[0][1]
    assert sum(rows for rows, _ in read[1:]) <= 5 * (PAGE + 1)
