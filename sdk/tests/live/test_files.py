"""Files over a running service: every route, from every kind of source."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from quartermaster import errors

CONTENT = os.urandom(3 << 20)


@pytest.fixture
def stored(client: Any) -> Any:
    return client.files.upload(b"first", file_name="notes.txt")


def test_bytes_are_stored_with_their_size_digest_and_guessed_type(client: Any) -> None:
    stored = client.files.upload(CONTENT, file_name='bild äöü "1".png')
    assert stored.metadata.file_name == 'bild äöü "1".png'
    assert stored.metadata.media_type == "image/png"
    assert stored.metadata.byte_size == len(CONTENT)
    assert stored.metadata.content_sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert stored.metadata.retention_expires_at is None
    assert (stored.revision, stored.replayed, stored.purpose) == (1, False, "AgentArtifact")
    assert client.files.get(stored.id).owner.kind == "DaemonIdentity"


def test_paths_files_pipes_and_iterators_are_stored_alike(client: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.bin"
    path.write_bytes(CONTENT)
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as end:
        end.write(CONTENT[:1000])
    halves = [CONTENT[: 1 << 20], CONTENT[1 << 20 :]]
    with path.open("rb") as file, os.fdopen(reader, "rb") as pipe:
        digests = {
            client.files.upload(source, file_name=name).metadata.content_sha256
            for source, name in (
                (path, None),
                (str(path), None),
                (file, None),
                (io.BytesIO(CONTENT), "a"),
                (iter(halves), "a"),
                (memoryview(CONTENT), "a"),
            )
        }
        piped = client.files.upload(pipe, file_name="piped")
        assert not file.closed
    assert digests == {hashlib.sha256(CONTENT).hexdigest()}
    assert piped.metadata.byte_size == 1000


def test_a_file_is_stored_from_where_it_stands(client: Any) -> None:
    file = io.BytesIO(b"header,content")
    file.seek(7)
    assert client.files.upload(file, file_name="a").metadata.byte_size == 7


def test_progress_ends_at_the_size_of_the_content(client: Any) -> None:
    seen: list[tuple[int, int]] = []
    client.files.upload(CONTENT, file_name="a", progress=lambda sent, total: seen.append((sent, total)))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [sent for sent, _ in seen] == sorted(sent for sent, _ in seen)


def test_an_operation_is_carried_out_once(client: Any) -> None:
    operation = uuid4()
    first = client.files.upload(b"once", file_name="a", operation_id=operation)
    again = client.files.upload(b"once", file_name="a", operation_id=operation)
    assert (again.id, again.replayed) == (first.id, True)
    with pytest.raises(errors.Conflict) as caught:
        client.files.upload(b"twice", file_name="a", operation_id=operation)
    assert caught.value.code == "operation_conflict"
    assert caught.value.request_id


def test_a_deadline_is_kept_renewed_and_lifted(client: Any) -> None:
    soon = datetime.now(timezone.utc) + timedelta(days=1)
    stored = client.files.upload(b"x", file_name="a", retention_expires_at=soon)
    assert stored.metadata.retention_expires_at == soon
    elsewhere = (soon + timedelta(days=1)).astimezone(timezone(timedelta(hours=2)))
    assert client.files.renew(stored.id, elsewhere).metadata.retention_expires_at == elsewhere
    assert client.files.renew(stored.id, None).metadata.retention_expires_at is None
    with pytest.raises(errors.ApiError, match="retention_is_indefinite"):
        client.files.renew(stored.id, elsewhere)


def test_a_replace_makes_a_new_version_of_the_expected_one_only(
    client: Any, stored: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {"expected_version_id": stored.version_id, "expected_revision": stored.revision}
    replaced = client.files.replace(stored.id, b"second", file_name="notes.txt", **expected)
    assert (replaced.id, replaced.revision) == (stored.id, 2)
    with pytest.raises(errors.PreconditionFailed):
        client.files.replace(stored.id, b"third", file_name="notes.txt", **expected)
    for form in ("_sync", "_async"):
        monkeypatch.setattr(f"quartermaster.{form}.files.PAGE_LIMIT", 1)
    assert [at.revision for at in client.files.versions(stored.id)] == [2, 1]


def test_a_referenced_file_is_deleted_only_when_nothing_refers_to_it(
    client: Any, owner: Any, stored: Any
) -> None:
    association = ("Resource", "report 7/8 ü")
    client.files.add_reference(stored.id, association)
    assert [at.reference_id for at in client.files.references(stored.id)] == [association[1]]
    with pytest.raises(errors.Conflict, match="file_referenced"):
        owner.files.delete(stored.id)
    client.files.remove_reference(stored.id, association)
    assert owner.files.delete(stored.id).availability == "Deleted"
    with pytest.raises(errors.Gone):
        client.files.create_read_link(stored.id, stored.version_id)


def test_files_are_listed_over_all_pages(client: Any) -> None:
    ids = {client.files.upload(b"x", file_name="a").id for _ in range(3)}
    assert ids <= {at.id for at in client.files.list(purpose="AgentArtifact", availability="Available")}


def test_a_link_opens_one_version_until_it_is_revoked(client: Any, stored: Any) -> None:
    link = client.files.create_read_link(stored.id, stored.version_id, ttl_minutes=1)
    assert httpx.get(link.url).content == b"first"
    assert "grant=" in link.url
    assert "grant=" not in repr(link)
    assert [at.link_id for at in client.files.links(stored.id)] == [link.link_id]
    assert client.files.revoke_link(stored.id, link.link_id).revoked_at is not None
    assert httpx.get(link.url).status_code == 410


def test_content_is_downloaded_to_paths_and_files(client: Any, tmp_path: Path) -> None:
    stored = client.files.upload(CONTENT, file_name="a")
    path = tmp_path / "a"
    assert client.files.download(stored.id, path) == len(CONTENT)
    assert path.read_bytes() == CONTENT
    held = io.BytesIO()
    client.files.download(stored.id, held, version_id=stored.version_id)
    assert held.getvalue() == CONTENT
    assert [at.name for at in tmp_path.iterdir()] == ["a"]


def test_a_failed_download_leaves_what_was_there(client: Any, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("before")
    with pytest.raises(errors.NotFound):
        client.files.download(uuid4(), path)
    assert path.read_text() == "before"
    assert [at.name for at in tmp_path.iterdir()] == ["a"]


def test_a_source_that_shrinks_is_not_stored(client: Any, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(CONTENT)

    def shrink(sent: int, total: int) -> None:
        os.truncate(path, 1 << 20)

    with pytest.raises(errors.QuartermasterError):
        client.files.upload(path, progress=shrink)


def pieces() -> Iterator[bytes]:
    yield b"a"
    yield b"b"


def test_an_empty_file_and_a_generator_are_stored(client: Any) -> None:
    assert client.files.upload(b"", file_name="empty").metadata.byte_size == 0
    assert client.files.upload(pieces(), file_name="two").metadata.byte_size == 2
