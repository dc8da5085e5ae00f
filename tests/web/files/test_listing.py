"""Lists of files: their pages, filters and search by words."""

import inspect
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import click
import pytest
from pydantic.alias_generators import to_camel
from quartermaster._async.files import AsyncFiles

from deploy.cli.commands.files import ls
from shared.files import listing, searching
from shared.files.filters import FILTERS
from tests.support.files.file_requests import Asker, expire, refuse, run_sql, succeed
from tests.support.web.web_process import Front
from tests.web.files.conftest import Cast
from web.console.pages.files import FORM, FilesQuery
from web.files.schemas import ListQuery


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


ROOT = Path(__file__).parents[3]
NAMES = [each.name for each in FILTERS]
NOW = datetime.now(UTC)


def write(moment: datetime) -> str:
    return f"{moment.replace(tzinfo=None).isoformat()}Z"


def examples(owner_id: UUID) -> Mapping[str, tuple[object, object]]:
    """For each filter, a value that the stored file matches and one that it does not."""
    return {
        "name": ("report", "invoice"),
        "media_type": ("text/*", "image/*"),
        "purpose": ("AgentArtifact", "MessagingMedia"),
        "availability": ("Available", "Deleted"),
        "owner_id": (owner_id, uuid4()),
        "created_from": (write(NOW - timedelta(hours=1)), write(NOW + timedelta(days=1))),
        "created_to": (write(NOW + timedelta(days=1)), write(NOW - timedelta(hours=1))),
    }


@pytest.fixture(scope="module")
def owner(cast: Cast) -> Asker:
    owner = cast.newcomer()[1]
    succeed(owner.upload(), 201)
    return owner


@pytest.mark.parametrize("name", NAMES)
def test_each_filter_narrows_the_list(owner: Asker, name: str) -> None:
    assert owner.owner_id is not None
    matching, other = examples(owner.owner_id)[name]
    assert len(succeed(owner.list(**{to_camel(name): matching}))["files"]) == 1
    assert succeed(owner.list(**{to_camel(name): other}))["files"] == []


def test_each_filter_is_offered_by_route_command_and_sdk() -> None:
    assert list(ListQuery.model_fields) == ["cursor", "limit", *NAMES]
    assert [name for name in inspect.signature(AsyncFiles.list).parameters if name != "self"] == NAMES
    options = [name for each in ls.params if isinstance(each, click.Option) and (name := each.name)]
    assert [name for name in options if name not in ("cursor", "limit")] == NAMES


def test_each_filter_is_in_the_specification() -> None:
    page = (ROOT / "docs" / "specification" / "files.md").read_text()
    section = page.partition('<a id="metadata"></a>')[2].partition("<a id=")[0]
    assert [name for name in NAMES if f"`{to_camel(name)}`" not in section] == []


def test_each_filter_with_a_form_is_a_field_of_the_console() -> None:
    named = [each.form.name for each in FILTERS if each.form is not None]
    assert [form.name for form, _, _ in FORM] == named
    assert list(FilesQuery.model_fields) == ["cursor", *named]


@pytest.fixture(params=["among the newest", "by the index"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Search in each of the two ways: the second scans next to none of the newest files."""
    if request.param == "by the index":
        for module in (listing, searching):
            monkeypatch.setattr(module, "SCANNED_FILES", 1)


def store(asker: Asker, name: str, media_type: str = "text/plain") -> str:
    return str(succeed(asker.upload(file_name=name, media_type=media_type), 201)["id"])


def names(asker: Asker, **query: object) -> list[str]:
    return [file["metadata"]["fileName"] for file in succeed(asker.list(**query))["files"]]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("rep", ["Quarterly_Report-2026.pdf", "reports.txt"]),
        ("REPORT", ["Quarterly_Report-2026.pdf", "reports.txt"]),
        ("pdf quart", ["Quarterly_Report-2026.pdf"]),
        ("2026", ["Quarterly_Report-2026.pdf"]),
        ("resume", ["Résumé.txt"]),
        ("RÉS", ["Résumé.txt"]),
        ("日本", ["日本語.txt"]),
        ("eport", []),
        ("report résumé", []),
        ("' | 'o:", []),
        ("a:* & b", []),
    ],
)
def test_a_name_is_found_by_beginnings_of_its_words(asker: Asker, name: str, found: list[str]) -> None:
    for each in ("reports.txt", "Quarterly_Report-2026.pdf", "Résumé.txt", "日本語.txt"):
        store(asker, each)
    assert names(asker, name=name) == found


@pytest.mark.usefixtures("way")
def test_a_media_type_is_found_whole_or_by_its_family(asker: Asker) -> None:
    for name, media_type in (("a", "image/png"), ("b", "image/jpeg"), ("c", "text/plain; charset=utf-8")):
        store(asker, name, media_type)
    for asked, found in (
        ("image/*", ["b", "a"]),
        ("IMAGE/PNG", ["a"]),
        ("text/plain", ["c"]),
        ("audio/*", []),
    ):
        assert names(asker, mediaType=asked) == found
    assert names(asker, mediaType="image/*", name="b") == ["b"]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_of_a_search_leave_nothing_out(asker: Asker, limit: int) -> None:
    ids = [store(asker, f"{word} {number}") for number in range(3) for word in ("note", "other")][::2]
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = succeed(asker.list(name="note", limit=limit, cursor=cursor))
        found += [file["id"] for file in page["files"]]
        cursor = page["nextCursor"]
        if cursor is None:
            break
    assert found == ids[::-1]


@pytest.mark.usefixtures("way")
def test_file_is_found_by_its_newest_name_and_present_state(cast: Cast, asker: Asker) -> None:
    file = succeed(asker.upload(file_name="draft.txt"), 201)
    succeed(asker.replace(file, file_name="final.txt"))
    assert (names(asker, name="draft"), names(asker, name="final")) == ([], ["final.txt"])
    succeed(cast.admin.delete(file))
    assert names(asker, name="final", availability="Available") == []
    assert names(asker, name="final", availability="Deleted") == ["final.txt"]


@pytest.mark.usefixtures("way")
def test_search_never_finds_files_of_others(cast: Cast, asker: Asker) -> None:
    word = f"w{uuid4().hex}"
    store(asker, word)
    for reader in (asker, cast.admin, cast.member):
        assert names(reader, name=word) == [word]
    for other in (cast.colleague, cast.foreign_agent, cast.globex_owner):
        assert names(other, name=word) == []


def test_the_files_of_one_owner_are_those_that_the_caller_may_list(cast: Cast) -> None:
    deployment, asker = cast.newcomer()
    store(asker, "mine.txt")
    owner_id = deployment.deployment.daemon_identity_id
    assert names(cast.admin, ownerId=owner_id) == ["mine.txt"]
    assert names(cast.admin, ownerId=owner_id, name="mine") == ["mine.txt"]
    assert names(asker, ownerId=owner_id) == ["mine.txt"]
    for other in (cast.colleague, cast.globex_owner):
        assert names(other, ownerId=owner_id) == []
        assert names(other, ownerId=owner_id, name="mine") == []


@pytest.mark.usefixtures("way")
def test_dates_are_of_the_first_upload(front: Front, asker: Asker) -> None:
    before = datetime.now(UTC)
    file_id = UUID(store(asker, "dated.txt"))
    made = datetime.fromtimestamp((file_id.int >> 80) / 1000, tz=UTC)

    def found(**query: datetime) -> bool:
        sent = {name: f"{at.replace(tzinfo=None).isoformat()}Z" for name, at in query.items()}
        plain = names(asker, **sent) == ["dated.txt"]
        assert plain == (names(asker, name="dated", **sent) == ["dated.txt"])
        return plain

    a_moment = timedelta(milliseconds=1)
    assert found(createdFrom=before - timedelta(seconds=1), createdTo=made + timedelta(hours=1))
    assert (found(createdFrom=made), found(createdFrom=made + a_moment)) == (True, False)
    assert (found(createdTo=made), found(createdTo=made + a_moment)) == (False, True)
    assert found(createdFrom=datetime(1960, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("name", "---", 422),
        ("name", "", 422),
        ("mediaType", "image", 422),
        ("mediaType", "*/*", 422),
        ("ownerId", "me", 400),
        ("createdFrom", "yesterday", 422),
        ("owner", "me", 400),
    ],
)
def test_invalid_filter_is_refused(asker: Asker, name: str, value: str, status: int) -> None:
    assert asker.list(**{name: value}).status_code == status
    if status == 422:
        refuse(asker.list(**{name: value}), 422, "validation_failed")
