"""Expired media of one distribution does not delay the notification of another's."""

import pytest

from shared.media.importing import import_notifications
from shared.media.importing.import_notifications import notice_expired_media
from shared.runtime.batches import budget
from tests.shared.media.conftest import Desk, Mailbox


def watch(desk: Desk, mailbox: Mailbox, count: int, *, since: str) -> None:
    desk.sql(
        f"""
        INSERT INTO expiring_media (file_id, distribution_id, details, expires_at)
        SELECT gen_random_uuid(), :distribution, '{{}}', now() - interval '{since}' FROM generate_series(1, :count)""",
        distribution=mailbox.id,
        count=count,
    )


def test_many_expired_files_of_one_distribution_do_not_delay_anothers(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_notifications, "BATCH_SIZE", 10)
    many, other = desk.mailbox(), desk.mailbox()
    watch(desk, many, 40, since="1 hour")
    watch(desk, other, 1, since="1 second")
    with budget(0):
        assert notice_expired_media(desk.database) == 10
    left = desk.sql("SELECT distribution_id FROM expiring_media")
    assert {row.distribution_id for row in left} == {many.id}
    assert notice_expired_media(desk.database) == 31
