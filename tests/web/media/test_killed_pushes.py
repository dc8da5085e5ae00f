"""`kill -9` of the web process at every step of a push: the repeated push leads to one import."""

from typing import Any
from uuid import uuid4

import pytest

from shared.files.sweeps import sweep_staging
from tests.support.data.media_samples import PDF
from tests.support.processes.killable_processes import die_at
from tests.support.web.web_process import Front
from tests.web.media import mortal_front
from tests.web.media.conftest import Connector, encode, media, sql

BEFORE_COMMIT = ("upload.begun", "upload.opened", "upload.received", "upload.sealed", "upload.before_commit")
AFTER_COMMIT = ("jobs.before_publish", "upload.committed", "push.stored")


def dies(connector: Connector, point: str, content_type: str, body: bytes) -> bool:
    headers = {"Authorization": connector.authorization, "Content-Type": content_type}
    options: dict[str, Any] = {"data": body}
    settings = connector.front.settings.model_copy(update={"faults": point})
    return die_at(point, mortal_front.take, settings, connector.path, headers, options)


@pytest.mark.parametrize("point", BEFORE_COMMIT + AFTER_COMMIT)
def test_pushed_bytes_are_one_file_whenever_the_front_dies(
    front: Front, connector: Connector, point: str
) -> None:
    message = uuid4().hex
    body, content_type = encode(("messageId", message), ("attachmentId", "1"), ("file", PDF))
    assert dies(connector, point, content_type, body)
    sweep_staging(front.services.database, front.services.blobs)
    again = front.post(
        connector.path, connector.authorization, data=body, headers={"Content-Type": content_type}
    )
    assert again.status_code == 202, again.text
    pushed = again.json or {}
    assert (pushed["state"], pushed["replayed"]) == ("Stored", point in AFTER_COMMIT)
    (row,) = sql(front, "SELECT * FROM media_imports WHERE message_id = :id", id=message)
    versions = sql(front, "SELECT id FROM file_versions WHERE file_id = :id", id=row.file_id)
    assert [version.id for version in versions] == [row.version_id]
    with front.services.blobs.open(row.version_id, placed=False) as reader:
        assert b"".join(reader.chunks(0, len(PDF.content))) == PDF.content
    known = {at.version_id for at in sql(front, "SELECT version_id FROM blobs WHERE state = 'staged'")}
    assert {at.version_id for batch in front.services.blobs.list_unlocked() for at in batch} <= known


@pytest.mark.parametrize("point", ["push.before_commit", "jobs.before_publish", "push.queued"])
def test_a_pushed_address_is_one_import_whenever_the_front_dies(
    front: Front, connector: Connector, point: str
) -> None:
    body = media()
    raw = front.app.json.dumps(body).encode()
    assert dies(connector, point, "application/json", raw)
    again = connector.push(body).json or {}
    assert again["replayed"] is (point != "push.before_commit")
    rows = sql(front, "SELECT state FROM media_imports WHERE message_id = :id", id=body["messageId"])
    assert [row.state for row in rows] == ["Queued"]
