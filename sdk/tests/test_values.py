"""Arguments that are rejected before a request, and parsing of values in responses."""

from __future__ import annotations

import io
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import pytest

from quartermaster import errors, resources
from quartermaster._wire import read_timestamp, write_timestamp
from sdk.tests.forms import Connect
from sdk.tests.scripted_service import Answer, ScriptedService, file_body, in_turn, upload_body

NAIVE = datetime(2027, 1, 1)  # noqa: DTZ001 (the rejected value)


@pytest.mark.parametrize("minutes", [0, -1, 1441, 1.0, 1.5, True, "60", None])
def test_a_link_lives_whole_minutes_up_to_a_day(
    service: ScriptedService, connect: Connect, minutes: Any
) -> None:
    with pytest.raises(ValueError, match="whole number"):
        connect(**service.key).files.create_read_link(uuid4(), uuid4(), ttl_minutes=minutes)
    assert service.requests == []


def test_a_deadline_without_a_time_zone_is_refused(service: ScriptedService, connect: Connect) -> None:
    client = connect(**service.key)
    with pytest.raises(ValueError, match="time zone"):
        client.files.renew(uuid4(), NAIVE)
    with pytest.raises(ValueError, match="time zone"):
        client.files.upload(b"x", file_name="a", retention_expires_at=NAIVE)
    assert service.requests == []


def test_a_renewal_states_null_or_a_deadline_and_never_omits_it(
    service: ScriptedService, connect: Connect
) -> None:
    client = connect(**service.key)
    client.files.renew(uuid4(), None)
    client.files.renew(uuid4(), datetime(2027, 1, 1, 12, 30, 0, 123, tzinfo=timezone(timedelta(hours=1))))
    assert [at.body for at in service.requests] == [
        b'{"retentionExpiresAt":null}',
        b'{"retentionExpiresAt":"2027-01-01T11:30:00.000123Z"}',
    ]
    with pytest.raises(TypeError):
        client.files.renew(uuid4())


def test_no_id_becomes_another_address(service: ScriptedService, connect: Connect) -> None:
    with pytest.raises(ValueError, match="badly formed"):
        connect(**service.key).files.get("../admin")
    assert service.requests == []


def test_text_is_no_content(service: ScriptedService, connect: Connect) -> None:
    with pytest.raises(TypeError, match="binary mode"):
        connect(**service.key).files.upload(io.StringIO("x"), file_name="a")


def test_content_needs_a_name(service: ScriptedService, connect: Connect) -> None:
    with pytest.raises(ValueError, match="pass file_name"):
        connect(**service.key).files.upload(b"x")


class Shrinking(io.BytesIO):
    """A file that is empty when it is read a second time."""

    looks = 0

    def read(self, size: int | None = -1) -> bytes:
        self.looks += 1
        return super().read(size) if self.looks == 1 else b""


def test_truncated_source_is_not_sent_as_complete_content(service: ScriptedService, connect: Connect) -> None:
    with pytest.raises(errors.ContentChanged):
        connect(**service.key).files.upload(Shrinking(b"x" * 1000), file_name="a")


def test_other_content_than_was_sent_is_noticed(service: ScriptedService, connect: Connect) -> None:
    service.script = in_turn(Answer(201, upload_body(b"other")))
    with pytest.raises(errors.DigestMismatch):
        connect(**service.key).files.upload(b"content", file_name="a")


def test_an_upload_sends_what_the_interface_names_and_nothing_else(
    service: ScriptedService, connect: Connect
) -> None:
    service.script = in_turn(Answer(201, upload_body(b"content")))
    client = connect(**service.key)
    organization = uuid4()
    client.files.upload(b"content", file_name="a", association=("Task", "7"), organization_id=organization)
    query = dict(service.requests[0].query)
    assert len(query.pop("operationId")) == 36
    assert query == {
        "byteSize": "7",
        "associationKind": "Task",
        "associationId": "7",
        "organizationId": str(organization),
    }


def test_timestamps_are_read_with_any_fraction_and_written_in_utc() -> None:
    moment = datetime(2026, 11, 22, 10, 0, 0, 120_000, tzinfo=timezone.utc)
    for text in ("2026-11-22T10:00:00.12Z", "2026-11-22T10:00:00.120000Z"):
        assert read_timestamp(text) == moment
    assert read_timestamp(write_timestamp(moment)) == moment


def test_answers_become_resources_and_what_is_unknown_is_passed_over() -> None:
    body = file_body()
    file = resources.read(resources.File, body)
    assert str(file.id) == body["id"]
    assert file.owner.kind == "DaemonIdentity"
    assert file.metadata.retention_expires_at is None
    assert file.metadata.created_at.tzinfo is timezone.utc
