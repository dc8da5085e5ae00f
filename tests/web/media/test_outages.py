"""Outages of all that is around us: each attachment ends stored once, and each notification told once, in order.

The networks' published clients are the other side: slack_sdk and twilio sign what is pushed, standardwebhooks verifies
what is told; sources and the endpoint are real servers, and the database's clock is moved, so that pauses, a weekend,
the grace of who does not pay and an hour without a store go by as they would.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook, webhooks

from deploy.embedded.postgres import EmbeddedPostgres
from shared.credits.balances import get_balance
from shared.deliveries.sender import Sender
from shared.encryption import Encryption
from shared.files.metering.storage_charges import accrue_storage
from shared.files.metering.storage_prices import StoragePrice
from shared.identity.tokens import signing_keys
from shared.media.importing.import_notifications import KIND
from shared.media.importing.paused_imports import resume_paused
from shared.media.notifications.notification_channel import DistributionChannel
from tests.shared.egress.servers import Server, content
from tests.support import networks
from tests.support.data.media_samples import JPEG, PDF, PNG, Sample
from tests.support.data.moved_clock import MovedClock
from tests.support.networks.serving import Reply
from tests.support.web.web_process import LOCAL_EGRESS, Front
from tests.web.media.conftest import fetch, sql
from tests.web.media.webhook_senders import Line, open_line

HOOK = "/hook"
OK, GONE = content(b""), content(b"", status="410 Gone")
DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
GRACE = 14 * DAY
DEAR = StoragePrice(amount=10**10)
"""What a gibibyte costs, so that a day of a few attachments costs more than what was paid at first."""


@pytest.fixture(scope="module")
def front_settings() -> Mapping[str, object]:
    return LOCAL_EGRESS


@pytest.fixture
def clock(postgres_server: EmbeddedPostgres, front: Front, monkeypatch: pytest.MonkeyPatch) -> MovedClock:
    """The clock of the database, the senders and the receivers: signatures are valid for five minutes.

    The web process reads it every time.
    """
    clock = MovedClock(postgres_server, front.services.database)

    class Moment(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return clock.now.astimezone(tz)

    monkeypatch.setattr(webhooks, "datetime", Moment)
    monkeypatch.setattr(signing_keys, "CLOCK_SECONDS", 0)
    return clock


@dataclass(frozen=True, kw_only=True)
class Told:
    """The messages that the endpoint received, as standardwebhooks reads them."""

    id: str
    at: str
    import_id: str


@dataclass(kw_only=True)
class Desk:
    """A distribution of two networks with an endpoint, and all that was pushed to it."""

    front: Front
    clock: MovedClock
    slack: Line
    twilio: Line
    endpoint: Server
    secret: str = ""
    pushed: list[tuple[Line, bytes]] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)

    def admin(self, method: str, path: str, **options: Any) -> Any:
        path = f"/admin/distributions/{self.slack.distribution_id}{path}"
        answer = self.front.ask(method, path, self.slack.administrator.authorization, **options)
        assert answer.status_code == 200, answer.text
        return answer.get_json()

    def name_endpoint(self) -> None:
        self.admin("PUT", "/notification-endpoint", json={"url": self.endpoint.url(HOOK)})

    def push_slack(self, sample: Sample) -> None:
        """Push a file as Slack does."""
        self._push(self.slack, sample)

    def push_twilio(self, sample: Sample) -> None:
        """Push a file as Twilio does."""
        self._push(self.twilio, sample)

    def _push(self, line: Line, sample: Sample) -> None:
        stand_in = line.stand_in
        body = stand_in.message(stand_in.keep(sample), message=str(len(self.pushed) + 1))
        self.pushed.append((line, body))
        self.digests.append(hashlib.sha256(sample.content).digest())
        self.push_again(self.pushed[-1])

    def push_again(self, pushed: tuple[Line, bytes]) -> None:
        line, body = pushed
        assert line.send(body, at=self.clock.now.timestamp()).status_code == 200

    def work(self) -> None:
        """Resume, fetch and send everything due, as workers do over time."""
        resume_paused(self.front.services.database)
        fetch(self.front)
        channels = {KIND: DistributionChannel(Encryption(self.front.settings), lambda _, body: body)}
        sender = Sender(self.front.services.database, self.front.settings, channels)
        sender.send_due()
        sender.close()
        self._hear()

    def wait(self, state: str = "Queued") -> None:
        """Move the clock until everything in a state is due again."""
        due: datetime
        ((due,),) = sql(
            self.front,
            "SELECT coalesce(max(due_at), now()) FROM media_imports WHERE state = :state",
            state=state,
        )
        self.clock.move(max(due - self.clock.now, timedelta(0)))

    def states(self) -> list[tuple[str, str | None]]:
        return [(one.state, one.code) for one in self.slack.imports()]

    def _hear(self) -> None:
        for asked in self.endpoint.asked:
            event = Webhook(self.secret).verify(asked.body, dict(asked.headers))
            import_id = event["data"]["importId"]
            self.told.append(Told(id=asked.headers["webhook-id"], at=event["timestamp"], import_id=import_id))
        self.endpoint.asked.clear()


@pytest.fixture
def desk(front: Front, clock: MovedClock, server: Server) -> Iterator[Desk]:
    with networks.SlackStandIn() as slack_server, networks.TwilioStandIn() as twilio_server:
        line = open_line(front, slack_server)
        other = replace(line, stand_in=twilio_server)
        assert other.put_settings().status_code == 200
        desk = Desk(front=front, clock=clock, slack=line, twilio=other, endpoint=server)
        rotated = desk.admin("POST", "/rotate-webhook-secret?overlapSeconds=0")
        desk.secret = rotated["webhookSecret"]
        server.on(HOOK, OK)
        desk.name_endpoint()
        yield desk


def source_is_not_there_yet(desk: Desk) -> None:
    """Twilio answers 404 twice, the second time after a pause."""
    desk.push_twilio(PNG)
    (imported,) = desk.slack.imports()
    path = imported.location["url"].removeprefix(desk.twilio.stand_in.url or "")
    desk.twilio.stand_in.answers[path] = Reply(status=404)
    for _ in range(2):
        desk.work()
        assert desk.states()[-1] == ("Queued", "media_gone")
        desk.wait()
    del desk.twilio.stand_in.answers[path]
    desk.work()


def token_is_revoked(desk: Desk) -> None:
    """Slack refuses the token over a weekend, sends a message again, and an administrator replaces the token."""
    settings = dict(desk.slack.stand_in.settings)
    assert desk.slack.put_settings(settings | {"botToken": "xoxb-" + "revoked-" * 4}).status_code == 200
    for sample in (PDF, JPEG):
        desk.push_slack(sample)
        desk.work()
        assert desk.states()[-1] == ("Held", "network_credentials_refused")
    for _ in range(2):
        desk.clock.move(DAY)
        desk.push_again(desk.pushed[-1])
        desk.work()
        assert desk.states()[-2:] == [("Held", "network_credentials_refused")] * 2
    assert desk.slack.put_settings(settings).status_code == 200
    desk.work()


def endpoint_is_gone(desk: Desk) -> None:
    """The endpoint answers 410 and is enabled again; what it missed is replayed after the last that it has."""
    last = desk.told[-1].id
    desk.endpoint.on(HOOK, GONE)
    for sample in (PNG, PDF, JPEG, PNG):
        desk.push_slack(sample)
        desk.work()
        desk.clock.move(HOUR)
    refused = desk.told.pop()
    assert refused.id != last
    desk.endpoint.on(HOOK, OK)
    desk.name_endpoint()
    assert desk.admin("POST", "/notifications/replay", json={"cursor": last})["count"] == 4
    desk.work()
    # One after the other, though others go out four at a time.
    assert [told.import_id for told in desk.told[-4:]] == [str(one.id) for one in desk.slack.imports()[-4:]]


def organization_owes(desk: Desk) -> None:
    """The organization does not pay for its storage, day after day, and then does."""
    pay(desk, "0.0001")
    accrue_storage(desk.front.services.database, price=DEAR, grace=GRACE)
    let_the_grace_end(desk)
    desk.push_slack(PDF)
    desk.push_twilio(PNG)
    desk.work()
    assert desk.states()[-2:] == [("Held", "insufficient_credits")] * 2
    desk.wait("Held")
    desk.work()
    assert desk.states()[-2:] == [("Held", "insufficient_credits")] * 2
    pay(desk, "1000000000")
    desk.wait("Held")
    desk.work()


def let_the_grace_end(desk: Desk) -> None:
    """Charge each day for what is stored, until nothing more is stored."""
    database = desk.front.services.database
    for _ in range(GRACE // DAY + 4):
        desk.clock.move(DAY)
        accrue_storage(database, price=DEAR, grace=GRACE)
        with database.autocommit() as session:
            refused_from = get_balance(session, desk.slack.organization_id).storage_refused_from
        if refused_from is not None and refused_from <= desk.clock.now:
            return
    pytest.fail("whoever does not pay stores for longer than the grace")


def pay(desk: Desk, amount: str) -> None:
    path = f"/admin/organizations/{desk.slack.organization_id}/credits/top-ups"
    paid = {"amount": amount, "reference": f"invoice {amount}"}
    answer = desk.front.post(path, desk.slack.administrator.authorization, json=paid)
    assert answer.status_code == 201, answer.text


def store_is_away(desk: Desk) -> None:
    """Our own store is away for an hour while imports arrive: no attempt is counted, nothing fails."""
    store = Path(desk.front.settings.blob_store.removeprefix("file://"))
    away = store.with_name("away")
    store.rename(away)
    count = len(desk.pushed)
    for push in (desk.push_twilio, desk.push_slack, desk.push_twilio, desk.push_slack):
        push(JPEG)
        desk.work()
        assert set(desk.states()[count:]) == {("Queued", "blob_store_unavailable")}
        desk.clock.move(15 * MINUTE)
    desk.work()
    assert {(one.state, one.attempts) for one in desk.slack.imports()[count:]} == {("Queued", 0)}
    away.rename(store)
    desk.wait()
    desk.work()


def test_after_all_outages_everything_is_stored_once_and_told_once_in_order(desk: Desk) -> None:
    for outage in (
        source_is_not_there_yet,
        token_is_revoked,
        endpoint_is_gone,
        organization_owes,
        store_is_away,
    ):
        outage(desk)
        assert {state for state, _ in desk.states()} == {"Stored"}, outage.__doc__
    for pushed in desk.pushed:
        desk.push_again(pushed)
    desk.work()
    assert desk.states() == [("Stored", None)] * len(desk.pushed)
    stored = sql(
        desk.front,
        "SELECT content_sha256 FROM files JOIN file_versions ON file_versions.id = current_version_id"
        " WHERE files.organization_id = :id AND files.state = 'Available'",
        id=desk.slack.organization_id,
    )
    assert sorted(bytes(row.content_sha256) for row in stored) == sorted(desk.digests)
    written = sql(
        desk.front,
        "SELECT id FROM media_imports WHERE distribution_id = :id ORDER BY ended_at",
        id=desk.slack.distribution_id,
    )
    assert [told.import_id for told in sorted(desk.told, key=lambda told: told.at)] == [
        str(row.id) for row in written
    ]
    assert desk.admin("POST", "/notifications/replay", json={}) == {"count": 0, "nextCursor": None}
