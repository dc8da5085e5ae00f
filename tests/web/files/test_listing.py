"""`GET /files`: pages, filters, and nothing twice or missing while files are created and deleted.

Specified in docs/specification/files.md#metadata.
"""

from typing import Any

import pytest

from tests.support.web.web_process import Front
from tests.web.files.asking import Asker, expire, refuse, run_sql, succeed
from tests.web.files.conftest import Cast


def walk(asker: Asker, limit: int, **query: object) -> list[list[str]]:
    """Return the ids of each page."""
    pages: list[list[str]] = []
    cursor: str | None = None
    while True:
        page = succeed(asker.list(limit=limit, cursor=cursor, **query))
        assert set(page) == {"files", "nextCursor"}
        assert len(page["files"]) <= limit
        pages.append([file["id"] for file in page["files"]])
        cursor = page["nextCursor"]
        if cursor is None:
            return pages


@pytest.fixture
def asker(cast: Cast) -> Asker:
    return cast.newcomer()[1]


def test_an_owner_without_files_has_one_empty_page(asker: Asker) -> None:
    assert succeed(asker.list()) == {"files": [], "nextCursor": None}


def test_a_listed_file_is_the_file_as_it_is_read(asker: Asker) -> None:
    file = succeed(asker.upload(), 201)
    assert succeed(asker.list())["files"] == [succeed(asker.metadata(file))]


@pytest.mark.parametrize("limit", [1, 2, 6, 7, 8, 100])
def test_pages_hold_every_file_once_and_the_newest_first(asker: Asker, limit: int) -> None:
    ids = [succeed(asker.upload(), 201)["id"] for _ in range(7)]
    pages = walk(asker, limit)
    listed = [each for page in pages for each in page]
    assert listed == sorted(ids, reverse=True)
    assert [len(page) for page in pages[:-1]] == [limit] * (len(pages) - 1)
    assert pages[-1]


def test_a_walk_misses_nothing_old_while_files_come_and_go(cast: Cast, asker: Asker) -> None:
    ids = sorted((succeed(asker.upload(), 201)["id"] for _ in range(6)), reverse=True)
    first = succeed(asker.list(limit=2))
    succeed(asker.upload(), 201)
    succeed(cast.admin.delete({"id": ids[1]}))
    rest = succeed(asker.list(limit=100, cursor=first["nextCursor"]))
    assert [file["id"] for file in first["files"] + rest["files"]] == ids


def test_filters_apply_to_the_present_state(cast: Cast, front: Front, asker: Asker) -> None:
    available, expired, deleted, media = (succeed(asker.upload(), 201)["id"] for _ in range(4))
    expire(front, {"id": expired})
    succeed(cast.admin.delete({"id": deleted}))
    run_sql(front, "UPDATE files SET purpose = 'MessagingMedia' WHERE id = :id", id=media)

    def ids(**query: object) -> set[str]:
        return {file["id"] for file in succeed(asker.list(**query))["files"]}

    assert ids() == {available, expired, deleted, media}
    assert ids(availability="Available") == {available, media}
    assert ids(availability="Expired") == {expired}
    assert ids(availability="Deleted") == {deleted}
    assert ids(availability="Pending") == set()
    assert ids(purpose="MessagingMedia") == {media}
    assert ids(purpose="AgentArtifact") == {available, expired, deleted}
    assert ids(purpose="AgentArtifact", availability="Available") == {available}
    assert [len(page) for page in walk(asker, 1, availability="Available")] == [1, 1]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", 0),
        ("limit", 101),
        ("purpose", "agentArtifact"),
        ("purpose", ""),
        ("availability", "available"),
        ("availability", "Gone"),
    ],
)
def test_a_wrong_filter_is_refused(asker: Asker, name: str, value: object) -> None:
    refuse(asker.list(**{name: value}), 422, "validation_failed")


def test_a_cursor_of_another_owner_opens_nothing(cast: Cast, asker: Asker) -> None:
    mine = [succeed(asker.upload(), 201)["id"] for _ in range(2)]
    foreign = succeed(cast.foreign_agent.upload(), 201)["id"]
    listed: Any = succeed(asker.list(cursor=foreign))["files"]
    assert {file["id"] for file in listed} == set(mine)
