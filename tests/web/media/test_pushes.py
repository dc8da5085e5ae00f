"""A distribution pushes media; every attachment becomes one import, and its bytes one file."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from tests.support.data.media_samples import PDF, PNG, SAMPLES, Sample
from tests.support.web.web_process import Front
from tests.web.media.conftest import Connector, form, media, sql


def test_media_to_fetch_is_queued(connector: Connector) -> None:
    body = media(conversationId="c-1")
    answer = connector.push(body)
    assert answer.status_code == 202, answer.text
    pushed = answer.json
    assert pushed is not None
    assert (pushed["state"], pushed["network"], pushed["replayed"]) == ("Queued", "standard", False)
    assert answer.headers["Location"].endswith(f"{connector.path}/{pushed['importId']}")
    read = connector.read(pushed["importId"])
    assert {**read, "replayed": False} == pushed
    assert (read["messageId"], read["attachmentId"], read["conversationId"]) == (
        body["messageId"],
        "a-1",
        "c-1",
    )
    assert (read["code"], read["fileId"], read["versionId"], read["endedAt"]) == (None, None, None, None)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.media_type)
def test_media_that_is_brought_along_is_stored_at_once(connector: Connector, sample: Sample) -> None:
    digest = hashlib.sha256(sample.content).hexdigest()
    answer = connector.push_form(sample, byteSize=len(sample.content), sha256=digest)
    assert answer.status_code == 202, answer.text
    pushed = answer.json
    assert pushed is not None
    assert pushed["state"] == "Stored"
    (file,) = sql(connector.front, "SELECT * FROM files WHERE id = :id", id=pushed["fileId"])
    assert (file.purpose, file.owner_id, file.payer_id) == (
        "MessagingMedia",
        connector.principal_id,
        connector.organization_id,
    )
    (version,) = sql(connector.front, "SELECT * FROM file_versions WHERE id = :id", id=pushed["versionId"])
    assert (version.file_name, version.media_type) == (sample.file_name, sample.media_type)
    assert bytes(version.content_sha256).hex() == digest


def test_the_attachments_of_one_message_are_pushed_together(connector: Connector) -> None:
    item = {"url": "https://media.example/a", "fileName": "a", "mediaType": "text/plain"}
    items = [{**item, "attachmentId": name} for name in ("z", "a", "m")]
    answer = connector.push({"messageId": uuid4().hex, "items": items})
    assert answer.status_code == 202, answer.text
    pushed = (answer.json or {})["items"]
    assert [one["attachmentId"] for one in pushed] == ["z", "a", "m"]
    assert len({one["importId"] for one in pushed}) == 3


def test_a_repeated_push_gives_the_first_import(connector: Connector) -> None:
    body = media()
    first, again = connector.push(body).json, connector.push(body).json
    assert first is not None
    assert again == {**first, "replayed": True}


def test_a_repeated_push_may_bring_other_secret_headers(connector: Connector) -> None:
    body = media()
    first = connector.push({**body, "headers": {"Authorization": "Bearer one"}}).json
    again = connector.push({**body, "headers": {"Authorization": "Bearer two"}})
    assert again.status_code == 202, again.text
    assert (again.json or {})["importId"] == (first or {})["importId"]


@pytest.mark.parametrize(
    "change",
    [{"url": "https://media.example/b"}, {"fileName": "b"}, {"byteSize": 3}, {"conversationId": "c"}],
    ids=lambda change: next(iter(change)),
)
def test_the_same_ids_for_something_else_are_a_conflict(
    connector: Connector, change: dict[str, object]
) -> None:
    body = media()
    connector.push(body)
    answer = connector.push({**body, **change})
    assert (answer.status_code, (answer.json or {})["code"]) == (409, "import_conflict")


def test_brought_media_replays_and_conflicts_by_its_content(connector: Connector) -> None:
    message = uuid4().hex
    first = connector.push_form(PNG, messageId=message)
    again = connector.push_form(PNG, messageId=message)
    assert (again.status_code, again.json) == (202, {**(first.json or {}), "replayed": True})
    other = connector.push_form(PDF, messageId=message)
    assert (other.status_code, (other.json or {})["code"]) == (409, "import_conflict")
    linked = connector.push(media(messageId=message))
    assert (linked.status_code, (linked.json or {})["code"]) == (409, "import_conflict")
    files = sql(connector.front, "SELECT 1 FROM media_imports WHERE message_id = :id", id=message)
    assert len(files) == 1


@pytest.mark.parametrize("brings_bytes", [True, False])
def test_fifty_pushes_at_once_make_one_import(front: Front, connector: Connector, brings_bytes: bool) -> None:
    message = uuid4().hex
    body = media(messageId=message)

    def push(_: int) -> str:
        client = front.app.test_client()
        options: dict[str, Any] = form(PNG, {"messageId": message}) if brings_bytes else {"json": body}
        answer = client.post(connector.path, headers={"Authorization": connector.authorization}, **options)
        assert answer.status_code == 202, answer.text
        return str((answer.json or {})["importId"])

    with ThreadPoolExecutor(12) as pool:
        ids = set(pool.map(push, range(50)))
    assert len(ids) == 1
    rows = sql(front, "SELECT * FROM media_imports WHERE message_id = :id", id=message)
    assert len(rows) == 1
    versions = sql(front, "SELECT 1 FROM file_versions WHERE file_id = :id", id=rows[0].file_id)
    assert len(versions) == int(brings_bytes)
    stray = sql(
        front,
        "SELECT * FROM blobs b WHERE NOT EXISTS (SELECT FROM file_versions v WHERE v.id = b.version_id)",
    )
    assert stray == []
