"""From a network's webhook to a stored file, or to the code of its failure."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from shared.encryption import Encryption
from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.distributions import update_distribution
from shared.media.importing.imports import Import, ImportState
from shared.media.importing.paused_imports import resume_paused
from shared.media.network_setup.network_administration import put_network_settings, remove_network_settings
from shared.media.networks.registry import NETWORKS
from tests.shared.media.conftest import Desk, Mailbox, make_mailbox
from tests.shared.media.networks.requests import network_of, signed
from tests.support import networks
from tests.support.data.identity import make_settings
from tests.support.data.media_samples import JPEG, MP4, OGG, PDF, PNG, SAMPLES, Sample
from tests.support.networks.serving import Reply, give


@dataclass(kw_only=True)
class Wire:
    """A network, a distribution that is set up for it, and a worker."""

    stand_in: networks.StandIn
    desk: Desk
    mailbox: Mailbox

    def push(self, *samples: Sample) -> tuple[Import, ...]:
        """Queue the attachments of a webhook, as the web process does."""
        body = self.stand_in.message(*[self.stand_in.keep(sample) for sample in samples])
        attachments = network_of(self.stand_in).attachments(signed(self.stand_in, body))
        return self.desk.push(self.mailbox, *attachments, network=self.stand_in.name)

    def end_of(self, queued: Import) -> tuple[ImportState, str | None]:
        """Run the worker, and return the state of the import."""
        self.desk.work_until_idle()
        ended = self.desk.read(queued)
        self.desk.require_tidy()
        return ended.state, ended.code

    def set_up(self, **changes: str) -> None:
        settings = make_settings(egress_allow_http=True)
        with self.desk.database.transaction() as session:
            update_distribution(
                session, actor=OPERATOR, distribution_id=self.mailbox.id, networks=list(NETWORKS)
            )
            put_network_settings(
                session,
                settings,
                actor=OPERATOR,
                distribution_id=self.mailbox.id,
                network=network_of(self.stand_in),
                values={**self.stand_in.settings, **changes},
            )


Connect = Callable[[type[networks.StandIn]], Wire]


@pytest.fixture
def connect(desk: Desk, running: Mapping[type[networks.StandIn], networks.StandIn]) -> Connect:
    def make_wire(make: type[networks.StandIn]) -> Wire:
        running[make].answers.clear()
        wire = Wire(stand_in=running[make], desk=desk, mailbox=make_mailbox(desk.database))
        wire.set_up()
        return wire

    return make_wire


@pytest.mark.parametrize("make", networks.STAND_INS, ids=lambda make: make.name)
def test_files_of_every_type_come_through_every_network(
    connect: Connect, make: type[networks.StandIn]
) -> None:
    wire = connect(make)
    queued = [wire.push(sample)[0] for sample in SAMPLES] if make.sends_files_singly else wire.push(*SAMPLES)
    if make.sends_files_singly:
        # Each message holds one file; all of these are of the message 1.
        assert len({one.attachment_id for one in queued}) == len(SAMPLES)
    wire.desk.work_until_idle()
    for one, sample in zip(queued, SAMPLES, strict=True):
        stored = wire.desk.read(one)
        assert (stored.state, stored.code) == (ImportState.STORED, None)
        assert wire.desk.content_of(stored) == sample.content
    files = wire.desk.files_of(wire.mailbox)
    assert {bytes(file.content_sha256) for file in files} == {
        hashlib.sha256(sample.content).digest() for sample in SAMPLES
    }
    assert {file.media_type for file in files} == {sample.media_type for sample in SAMPLES}
    assert {file.purpose for file in files} == {"MessagingMedia"}
    wire.desk.require_tidy()


@pytest.mark.parametrize("make", networks.STAND_INS, ids=lambda make: make.name)
def test_file_deleted_meanwhile_is_gone(connect: Connect, make: type[networks.StandIn]) -> None:
    wire = connect(make)
    (queued,) = wire.push(PNG)
    wire.stand_in.kept.clear()
    assert wire.end_of(queued) == (ImportState.FAILED, "media_gone")


@pytest.mark.parametrize(
    ("make", "changes"),
    [
        (networks.SlackStandIn, {"botToken": "xoxb-revoked-revoked"}),
        (networks.TwilioStandIn, {"authToken": "0" * 32}),
        (networks.TelegramStandIn, {"botToken": "123456789:revoked-revoked-revoked"}),
        (networks.WhatsAppStandIn, {"accessToken": "revoked-revoked-revoked"}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_credentials_that_are_not_good_any_more_are_named(
    connect: Connect, make: type[networks.StandIn], changes: dict[str, str]
) -> None:
    wire = connect(make)
    (queued,) = wire.push(PNG)
    wire.set_up(**changes)
    assert wire.end_of(queued) == (ImportState.HELD, "network_credentials_refused")
    wire.set_up()
    assert wire.end_of(queued) == (ImportState.STORED, None)
    assert wire.desk.read(queued).attempts == 1


def test_pending_imports_are_paused_while_settings_are_missing(connect: Connect) -> None:
    wire = connect(networks.DiscordStandIn)
    (queued,) = wire.push(PDF)
    with wire.desk.database.transaction() as session:
        remove_network_settings(
            session, actor=OPERATOR, distribution_id=wire.mailbox.id, network=NETWORKS["discord"]
        )
    assert wire.end_of(queued) == (ImportState.HELD, "network_not_configured")
    wire.set_up()
    assert wire.end_of(queued) == (ImportState.STORED, None)


def test_media_that_arrives_after_its_webhook_is_stored(connect: Connect) -> None:
    wire = connect(networks.TwilioStandIn)
    (queued,) = wire.push(PNG)
    kept = dict(wire.stand_in.kept)
    wire.stand_in.kept.clear()
    for attempt in (1, 2):
        wire.desk.let_time_pass()
        wire.desk.work()
        waiting = wire.desk.read(queued)
        assert (waiting.state, waiting.code, waiting.attempts) == (ImportState.QUEUED, "media_gone", attempt)
    wire.stand_in.kept.update(kept)
    assert wire.end_of(queued) == (ImportState.STORED, None)


def test_token_repaired_at_the_network_resumes_imports_by_itself(connect: Connect) -> None:
    wire = connect(networks.TwilioStandIn)
    (queued,) = wire.push(PNG)
    wire.set_up(authToken="0" * 32)
    assert wire.end_of(queued) == (ImportState.HELD, "network_credentials_refused")
    wire.desk.sql(
        "UPDATE network_settings SET value_encrypted = :good WHERE name = 'authToken'",
        good=Encryption(wire.desk.fetcher.settings).encrypt(wire.stand_in.settings["authToken"]),
    )
    assert resume_paused(wire.desk.database) == 0
    wire.desk.sql("UPDATE media_imports SET due_at = now() WHERE state = 'Held'")
    assert resume_paused(wire.desk.database) == 1
    assert wire.end_of(queued) == (ImportState.STORED, None)


def test_slacks_login_page_is_not_stored(connect: Connect) -> None:
    wire = connect(networks.SlackStandIn)
    (queued,) = wire.push(PNG)
    page = Reply(
        body=b"<!DOCTYPE html>" + bytes(len(PNG.content) - 15), media_type="text/html; charset=utf-8"
    )
    wire.stand_in.answers[f"/files-edge/T123ABC456-{queued.attachment_id}"] = page
    assert wire.end_of(queued) == (ImportState.FAILED, "media_type_mismatch")


def test_content_that_contradicts_whatsapps_digest_is_not_stored(connect: Connect) -> None:
    wire = connect(networks.WhatsAppStandIn)
    (queued,) = wire.push(OGG)
    altered = Sample(file_name=OGG.file_name, media_type=OGG.media_type, content=OGG.content[:-1] + b"\xff")
    wire.stand_in.answers["/whatsapp_business/attachments/"] = give(altered)
    assert wire.end_of(queued) == (ImportState.FAILED, "digest_mismatch")


def test_request_to_a_busy_network_is_retried(connect: Connect) -> None:
    wire = connect(networks.TelegramStandIn)
    (queued,) = wire.push(JPEG)
    path = f"/bot{wire.stand_in.settings['botToken']}/getFile"
    wire.stand_in.answers[path] = Reply(
        body=b'{"ok": false, "error_code": 429, "parameters": {"retry_after": 3}}', status=429
    )
    wire.desk.work()
    waiting = wire.desk.read(queued)
    assert (waiting.state, waiting.code, waiting.attempts) == (ImportState.QUEUED, "source_busy", 1)
    wire.stand_in.answers.clear()
    assert wire.end_of(queued) == (ImportState.STORED, None)


def test_file_posted_twice_and_edited_is_stored_once(connect: Connect) -> None:
    wire = connect(networks.TwilioStandIn)
    body = wire.stand_in.message(wire.stand_in.keep(MP4), message="77")
    told = network_of(wire.stand_in).attachments(signed(wire.stand_in, body))
    for _ in range(3):
        wire.desk.push(wire.mailbox, *told, network="twilio")
        wire.desk.work()
    assert len(wire.desk.files_of(wire.mailbox)) == 1
