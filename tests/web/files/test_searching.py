"""`GET /files` by name, media type, owner and date (docs/specification/files.md#metadata)."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from shared.files import listing, searching
from tests.support.web.web_process import Front
from tests.web.files.asking import Asker, refuse, succeed
from tests.web.files.conftest import Cast


@pytest.fixture(params=["among the newest", "by the index"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Search in each of the two ways: the second scans next to none of the newest files."""
    if request.param == "by the index":
        for module in (listing, searching):
            monkeypatch.setattr(module, "SCANNED_FILES", 1)


@pytest.fixture
def asker(cast: Cast) -> Asker:
    return cast.newcomer()[1]


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
