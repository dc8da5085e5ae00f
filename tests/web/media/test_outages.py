"""Outages of all that is around us: each attachment ends stored once, and each notification told once, in order.

The networks' published clients are the other side: slack_sdk and twilio sign what is pushed, svix and standardwebhooks
verify what is told; sources and the endpoint are real servers.
"""

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from standardwebhooks import Webhook

from deploy.embedded.valkey import EmbeddedValkey
from shared.deliveries.sender import Sender
from shared.encryption import Encryption
from shared.media.holding import resume_held
from shared.media.notification_channel import DistributionChannel
from shared.media.notifications import KIND
from tests.shared.egress.servers import Server, content
from tests.support import networks
from tests.support.front import Front, open_front
from tests.support.media_samples import JPEG, PDF, PNG, Sample
from tests.support.networks import slack, twilio
from tests.support.networks.serving import Reply
from tests.web.media.conftest import fetch, sql
from tests.web.media.webhook_senders import Line, open_line

slack_signature: Any = pytest.importorskip("slack_sdk.signature")
request_validator: Any = pytest.importorskip("twilio.request_validator")
svix_webhooks: Any = pytest.importorskip("svix.webhooks")

HOOK = "/hook"
OK, GONE = content(b""), content(b"", status="410 Gone")
OWES = (
    "UPDATE credit_balances SET posted = -1, storage_overdue_since = now() - interval '15 days',"
    " storage_refused_from = now() - interval '1 day' WHERE organization_id = :id"
)


@pytest.fixture(scope="module")
def front(
    database_url: str, valkey_server: EmbeddedValkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Front]:
    lenient = {"egress_allow_private": True, "egress_allow_http": True}
    with open_front(database_url, valkey_server.url, tmp_path_factory.mktemp("blobs"), **lenient) as front:
        yield front


@dataclass(kw_only=True)
class Desk:
    """A distribution of two networks with an endpoint, and all that was pushed to it."""

    front: Front
    slack: Line
    twilio: Line
    endpoint: Server
    secret: str = ""
    pushed: list[tuple[str, bytes, dict[str, str]]] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)

    def admin(self, method: str, path: str, **options: Any) -> Any:
        path = f"/admin/distributions/{self.slack.distribution_id}{path}"
        answer = self.front.ask(method, path, self.slack.administrator.authorization, **options)
        assert answer.status_code == 200, answer.text
        return answer.get_json()

    def name_endpoint(self) -> None:
        self.admin("PUT", "/notification-endpoint", json={"url": self.endpoint.url(HOOK)})

    def push_slack(self, sample: Sample) -> str:
        """Push a file as Slack does, signed by slack_sdk; give its id."""
        stand_in = self.slack.stand_in
        file_id = stand_in.keep(sample)
        body = stand_in.message(file_id, message=str(len(self.pushed) + 1))
        at = str(int(time.time()))
        signed = slack_signature.SignatureVerifier(slack.SIGNING_SECRET).generate_signature(
            timestamp=at, body=body
        )
        headers = {"X-Slack-Request-Timestamp": at, "X-Slack-Signature": signed}
        self._push(self.slack, body, {**headers, "Content-Type": "application/json"}, sample)
        return file_id

    def push_twilio(self, sample: Sample) -> str:
        """Push a file as Twilio does, signed by twilio; give its id."""
        stand_in = self.twilio.stand_in
        file_id = stand_in.keep(sample)
        body = stand_in.message(file_id, message=str(len(self.pushed) + 1))
        parameters = dict(parse_qsl(body.decode(), keep_blank_values=True))
        validator = request_validator.RequestValidator(twilio.AUTH_TOKEN)
        signed = validator.compute_signature(self.twilio.url, parameters)
        headers = {"X-Twilio-Signature": signed, "Content-Type": stand_in.content_type}
        self._push(self.twilio, body, headers, sample)
        return file_id

    def _push(self, line: Line, body: bytes, headers: dict[str, str], sample: Sample) -> None:
        self.pushed.append((line.path, body, headers))
        self.digests.append(hashlib.sha256(sample.content).digest())
        self.push_again(self.pushed[-1])

    def push_again(self, pushed: tuple[str, bytes, dict[str, str]]) -> None:
        path, body, headers = pushed
        assert self.front.post(path, data=body, headers=headers).status_code == 200

    def work(self) -> None:
        """Fetch and tell what is due, as the workers do in their time."""
        sql(self.front, "UPDATE media_imports SET due_at = now(), is_ready = true WHERE state = 'Queued'")
        fetch(self.front)
        channels = {KIND: DistributionChannel(Encryption(self.front.settings), lambda _, body: body)}
        sender = Sender(self.front.services.database, self.front.settings, channels)
        sender.send_due()
        sender.close()

    def states(self) -> list[tuple[str, str | None]]:
        return [(one.state, one.code) for one in self.slack.imports()]

    def heard(self) -> list[tuple[str, str]]:
        """When what was stored that the endpoint was told of and took, as svix and standardwebhooks read it."""
        told = []
        for asked in self.endpoint.asked:
            headers = dict(asked.headers)
            svix_webhooks.Webhook(self.secret).verify(asked.body, headers)
            event = Webhook(self.secret).verify(asked.body, headers)
            told.append((event["timestamp"], event["data"]["importId"]))
        return told


@pytest.fixture
def desk(front: Front, server: Server) -> Iterator[Desk]:
    with networks.SlackStandIn() as slack_server, networks.TwilioStandIn() as twilio_server:
        line = open_line(front, slack_server)
        other = replace(line, stand_in=twilio_server)
        assert other.put_settings().status_code == 200
        desk = Desk(front=front, slack=line, twilio=other, endpoint=server)
        rotated = desk.admin("POST", "/rotate-webhook-secret?overlapSeconds=0")
        desk.secret = rotated["webhookSecret"]
        server.on(HOOK, OK)
        desk.name_endpoint()
        yield desk


def source_is_not_there_yet(desk: Desk) -> None:
    """Twilio answers 404 twice."""
    desk.push_twilio(PNG)
    (imported,) = desk.slack.imports()
    path = imported.location["url"].removeprefix(desk.twilio.stand_in.url or "")
    desk.twilio.stand_in.answers[path] = Reply(status=404)
    for _ in range(2):
        desk.work()
        assert desk.states()[-1] == ("Queued", "media_gone")
    del desk.twilio.stand_in.answers[path]
    desk.work()


def token_is_revoked(desk: Desk) -> None:
    """Slack refuses the token over a weekend, until somebody mends it."""
    settings = dict(desk.slack.stand_in.settings)
    assert desk.slack.put_settings(settings | {"botToken": "xoxb-" + "revoked-" * 4}).status_code == 200
    for sample in (PDF, JPEG):
        desk.push_slack(sample)
        desk.work()
        assert desk.states()[-1] == ("Held", "network_credentials_refused")
    assert desk.slack.put_settings(settings).status_code == 200
    desk.work()


def endpoint_is_gone(desk: Desk) -> None:
    """The endpoint answers 410 and is enabled again; what it missed is replayed after the last that it has."""
    last = desk.endpoint.asked[-1].headers["webhook-id"]
    desk.endpoint.on(HOOK, GONE)
    for sample in (PNG, PDF, JPEG, PNG):
        desk.push_slack(sample)
        desk.work()
    refused = desk.endpoint.asked.pop()
    assert refused.headers["webhook-id"] != last
    desk.endpoint.on(HOOK, OK)
    desk.name_endpoint()
    assert desk.admin("POST", "/notifications/replay", json={"cursor": last})["count"] == 4
    desk.work()
    # One after the other, though others go out four at a time.
    assert [told for _, told in desk.heard()[-4:]] == [str(one.id) for one in desk.slack.imports()[-4:]]


def organization_owes(desk: Desk) -> None:
    """The organization does not pay for its storage, and then does."""
    organization_id = desk.slack.organization_id
    pay(desk, "1")
    sql(desk.front, OWES, id=organization_id)
    desk.push_slack(PDF)
    desk.push_twilio(PNG)
    resume_held(desk.front.services.database)
    desk.work()
    assert desk.states()[-2:] == [("Held", "insufficient_credits")] * 2
    pay(desk, "2")
    assert resume_held(desk.front.services.database) == 2
    desk.work()


def pay(desk: Desk, amount: str) -> None:
    path = f"/admin/organizations/{desk.slack.organization_id}/credits/top-ups"
    paid = {"amount": amount, "reference": f"invoice {amount}"}
    answer = desk.front.post(path, desk.slack.administrator.authorization, json=paid)
    assert answer.status_code == 201, answer.text


def store_is_away(desk: Desk) -> None:
    """Our own store is away for an hour: no attempt is counted, nothing fails."""
    store = Path(desk.front.settings.blob_store.removeprefix("file://"))
    away = store.with_name("away")
    store.rename(away)
    desk.push_twilio(JPEG)
    for _ in range(4):
        desk.work()
        assert desk.states()[-1] == ("Queued", "blob_store_unavailable")
    sql(desk.front, "UPDATE media_imports SET created_at = now() - interval '1 h' WHERE state = 'Queued'")
    away.rename(store)
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
    assert [told for _, told in sorted(desk.heard())] == [str(row.id) for row in written]
    assert desk.admin("POST", "/notifications/replay", json={}) == {"count": 0, "nextCursor": None}
