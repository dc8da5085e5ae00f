"""A distribution is notified of its media: signed, once for each event, until it is delivered."""

import json
import socket
import threading
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError
from werkzeug.test import TestResponse

from shared import failpoints
from shared.egress.errors import AddressRefused, EgressError, SchemeRefused, UrlRefused
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.media.importing.import_notifications import notice_expired_media
from shared.media.notifications import notification_endpoints
from tests.shared.egress.servers import Server, content
from tests.support.data.identity import make_settings
from tests.support.data.media_samples import PNG
from tests.support.web.web_process import LOCAL_EGRESS, Front
from tests.web.media.conftest import Connector, deliver, fetch, make_connector, media, sql

OK = content(b"")
HOOK = "/hook?key=secret"


@pytest.fixture(scope="module")
def front_settings() -> Mapping[str, object]:
    return LOCAL_EGRESS


@pytest.fixture
def connector(front: Front) -> Connector:
    """A distribution of the test's own."""
    return make_connector(front)


@pytest.fixture
def server(server: Server) -> Server:
    server.on(HOOK, OK)
    return server


class Told:
    """A distribution with a notification endpoint, and its administrator."""

    def __init__(self, connector: Connector, server: Server) -> None:
        self.connector = connector
        self.server = server
        self.admin = connector.front.identity.person(connector.organization_id, Role.WORKSPACE_ADMIN)
        self.put(server.url(HOOK))

    def ask(self, method: str, path: str, **options: Any) -> TestResponse:
        path = f"/admin/distributions/{self.connector.id}{path}"
        return self.connector.front.ask(method, path, self.admin.authorization, **options)

    def put(self, url: str) -> None:
        answer = self.ask("PUT", "/notification-endpoint", json={"url": url})
        assert (answer.status_code, answer.get_json()["url"]) == (200, url)

    def endpoint(self) -> Any:
        return self.ask("GET", "/notification-endpoint").get_json()

    def notifications(self, query: str = "") -> list[dict[str, Any]]:
        answer = self.ask("GET", f"/notifications{query}")
        assert answer.status_code == 200, answer.text
        listed: list[dict[str, Any]] = answer.get_json()["notifications"]
        return listed

    def store(self) -> dict[str, Any]:
        """Import a picture."""
        answer = self.connector.push_form(PNG)
        assert answer.status_code == 202, answer.text
        return self.connector.read(answer.get_json()["importId"])

    def heard(self) -> list[dict[str, Any]]:
        """What the endpoint was sent, verified as its owner would."""
        webhook = Webhook(self.connector.webhook_secret)
        return [webhook.verify(asked.body, dict(asked.headers)) for asked in self.server.asked]


@pytest.fixture
def told(front: Front, connector: Connector, server: Server) -> Told:
    sql(front, "DELETE FROM deliveries")
    return Told(connector, server)


def expire(front: Front, file_id: str, ago: str = "1 second") -> None:
    """Set the end of a file's retention into the past."""
    for table, column in (("files", "retention_expires_at"), ("expiring_media", "expires_at")):
        key = "id" if table == "files" else "file_id"
        changed = f"UPDATE {table} SET {column} = now() - CAST(:ago AS interval) WHERE {key} = :id"
        sql(front, changed, ago=ago, id=file_id)


def test_a_distribution_is_told_of_what_was_stored(front: Front, told: Told) -> None:
    imported = told.store()
    deliver(front)
    (asked,) = told.server.asked
    assert asked.headers["content-type"] == "application/json"
    (event,) = told.heard()
    assert event["type"] == "media.import.stored"
    assert event["timestamp"].endswith("Z")
    assert event["data"] == {
        "importId": imported["importId"],
        "network": "standard",
        "messageId": imported["messageId"],
        "attachmentId": imported["attachmentId"],
        "conversationId": None,
        "fileId": imported["fileId"],
        "versionId": imported["versionId"],
    }
    (listed,) = told.notifications()
    assert listed["id"] == asked.headers["webhook-id"]
    assert (listed["type"], listed["state"], listed["attempts"], listed["lastStatus"]) == (
        "media.import.stored",
        "Delivered",
        1,
        200,
    )


def test_a_distribution_is_told_of_what_could_not_be_stored(front: Front, told: Told) -> None:
    pushed = told.connector.push(media(told.server.url("/missing.png")))
    assert pushed.status_code == 202
    fetch(front)
    told.server.asked.clear()
    deliver(front)
    (event,) = told.heard()
    assert (event["type"], event["data"]["code"]) == ("media.import.failed", "media_gone")


def test_a_distribution_without_an_endpoint_is_told_nothing(
    front: Front, connector: Connector, server: Server
) -> None:
    assert connector.push_form(PNG).status_code == 202
    assert sql(front, "SELECT 1 FROM deliveries WHERE destination_id = :id", id=connector.id) == []


def test_every_attempt_has_the_same_id_and_a_signature_of_its_own(front: Front, told: Told) -> None:
    told.server.on(HOOK, content(b"", status="500 Failed"))
    told.store()
    deliver(front)
    (listed,) = told.notifications("?state=Waiting")
    assert listed["nextAttemptAt"] is not None
    told.server.on(HOOK, OK)
    deliver(front)
    first, second = told.server.asked
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == listed["id"]
    assert told.heard()[0] == told.heard()[1]


def test_during_a_rotation_both_secrets_sign(front: Front, told: Told) -> None:
    old = told.connector.webhook_secret
    new = told.ask("POST", "/rotate-webhook-secret?overlapSeconds=600").get_json()["webhookSecret"]
    told.store()
    deliver(front)
    (asked,) = told.server.asked
    assert asked.headers["webhook-signature"].count("v1,") == 2
    for secret in (old, new):
        Webhook(secret).verify(asked.body, dict(asked.headers))
    sql(
        front,
        "UPDATE distributions SET previous_webhook_secret_expires_at = now() WHERE id = :id",
        id=told.connector.id,
    )
    told.store()
    deliver(front)
    later = told.server.asked[-1]
    Webhook(new).verify(later.body, dict(later.headers))
    with pytest.raises(WebhookVerificationError):
        Webhook(old).verify(later.body, dict(later.headers))


def test_an_expired_file_is_told_once(front: Front, told: Told) -> None:
    imported = told.store()
    notice_expired_media(front.services.database)
    expire(front, imported["fileId"])
    for _ in range(3):
        notice_expired_media(front.services.database)
    deliver(front)
    heard = {event["type"]: event for event in told.heard()}
    assert len(told.server.asked) == 2
    stored, expired = heard["media.import.stored"], heard["file.expired"]
    assert expired["data"].pop("expiredAt").endswith("Z")
    assert expired["data"] == stored["data"]


def test_what_expired_while_nothing_ran_is_told_once(front: Front, told: Told) -> None:
    files = [told.store()["fileId"] for _ in range(3)]
    for file_id in files:
        expire(front, file_id, ago="9 days")
    threads = [
        threading.Thread(target=notice_expired_media, args=(front.services.database,)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    deliver(front)
    expired = [event["data"]["fileId"] for event in told.heard() if event["type"] == "file.expired"]
    assert sorted(expired) == sorted(files)


def test_a_death_of_the_sweep_tells_nothing_twice(
    front: Front, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    expire(front, told.store()["fileId"])
    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "hit", fail)
        with pytest.raises(Death):
            notice_expired_media(front.services.database)
    notice_expired_media(front.services.database)
    deliver(front)
    assert [event["type"] for event in told.heard()].count("file.expired") == 1


class Death(Exception):
    """The process ends here."""


def fail(point: str) -> None:
    if point == "notifications.before_commit":
        raise Death


def test_a_file_that_was_deleted_has_not_expired(front: Front, told: Told) -> None:
    file_id = told.store()["fileId"]
    answer = front.delete(f"/files/{file_id}?operationId={uuid4()}", told.admin.authorization)
    assert answer.status_code == 200
    sql(front, "UPDATE expiring_media SET expires_at = now() WHERE file_id = :id", id=file_id)
    notice_expired_media(front.services.database)
    deliver(front)
    assert [event["type"] for event in told.heard()] == ["media.import.stored"]
    assert sql(front, "SELECT 1 FROM expiring_media WHERE file_id = :id", id=file_id) == []


def test_a_deadline_that_has_moved_is_waited_for(front: Front, told: Told) -> None:
    file_id = told.store()["fileId"]
    sql(front, "UPDATE expiring_media SET expires_at = now() WHERE file_id = :id", id=file_id)
    notice_expired_media(front.services.database)
    ((moved, deadline),) = sql(
        front,
        "SELECT e.expires_at, f.retention_expires_at FROM expiring_media e JOIN files f ON f.id = e.file_id"
        " WHERE f.id = :id",
        id=file_id,
    )
    assert moved == deadline


def test_an_endpoint_that_is_gone_is_disabled_until_it_is_named_again(front: Front, told: Told) -> None:
    told.server.on(HOOK, content(b"", status="410 Gone"))
    told.store()
    deliver(front)
    assert told.endpoint()["disabledAt"] is not None
    (dead,) = told.notifications("?state=Dead")
    assert (dead["lastStatus"], len(told.notifications())) == (410, 1)
    told.server.on(HOOK, OK)
    told.put(told.server.url(HOOK))
    assert told.endpoint()["disabledAt"] is None
    assert told.ask("POST", "/notifications/resend-dead").get_json() == {"count": 1}
    deliver(front)
    assert [asked.headers["webhook-id"] for asked in told.server.asked] == [dead["id"]] * 2
    assert told.notifications()[0]["state"] == "Delivered"


def test_events_missed_by_a_disabled_endpoint_are_replayed_once_in_order(front: Front, told: Told) -> None:
    told.store()
    deliver(front)
    told.server.on(HOOK, content(b"", status="410 Gone"))
    told.store()
    deliver(front)
    told.server.asked.clear()
    missed = [told.store()["importId"] for _ in range(5)]
    deliver(front)
    assert [told.server.asked, told.notifications()[0]["lastCode"]] == [[], "endpoint_disabled"]
    told.server.on(HOOK, OK)
    since = told.endpoint()["disabledAt"]
    told.put(told.server.url(HOOK))
    deliver(front)
    assert told.server.asked == []
    replayed = told.ask("POST", "/notifications/replay", json={"since": since})
    assert replayed.get_json() == {"count": 5, "nextCursor": None}
    deliver(front)
    assert [event["data"]["importId"] for event in told.heard()] == missed
    again = told.ask("POST", "/notifications/replay", json={"since": since})
    assert again.get_json() == {"count": 0, "nextCursor": None}
    last = told.server.asked[-1].headers["webhook-id"]
    assert told.ask("POST", "/notifications/replay", json={"cursor": last}).get_json()["count"] == 0
    assert told.ask("POST", "/notifications/replay", json={}).get_json()["count"] == 1


def test_moved_endpoint_is_not_disabled_by_its_old_address(front: Front, told: Told) -> None:
    is_moved: list[bool] = []

    def say_that_it_has_moved(connection: socket.socket) -> None:
        if not is_moved:
            is_moved.append(True)
            told.put(told.server.url("/next"))
        content(b"", status="410 Gone")(connection)

    told.server.on(HOOK, say_that_it_has_moved)
    told.server.on("/next", OK)
    told.store()
    deliver(front)
    assert told.endpoint()["disabledAt"] is None
    deliver(front)
    assert [asked.path for asked in told.server.asked] == [HOOK, "/next"]
    assert told.notifications()[0]["state"] == "Delivered"


def test_what_waits_goes_to_the_next_endpoint(front: Front, told: Told) -> None:
    told.server.on("/next", OK)
    told.store()
    told.put(told.server.url("/next"))
    deliver(front)
    assert [asked.path for asked in told.server.asked] == ["/next"]


def test_a_removed_endpoint_is_sent_nothing(front: Front, told: Told) -> None:
    told.store()
    assert told.ask("DELETE", "/notification-endpoint").status_code == 204
    assert told.ask("GET", "/notification-endpoint").status_code == 404
    assert told.ask("DELETE", "/notification-endpoint").status_code == 204
    deliver(front)
    assert told.server.asked == []
    (given_up,) = told.notifications("?state=Dead")
    assert given_up["lastCode"] == "endpoint_removed"
    told.put(told.server.url(HOOK))
    resent = told.ask("POST", f"/notifications/{given_up['id']}/resend").get_json()
    assert (resent["state"], resent["attempts"]) == ("Waiting", 0)
    deliver(front)
    assert [event["type"] for event in told.heard()] == ["media.import.stored"]


def test_a_disabled_distribution_is_told_nothing(front: Front, told: Told) -> None:
    expire(front, told.store()["fileId"])
    assert told.ask("POST", "/disable").status_code == 200
    notice_expired_media(front.services.database)
    deliver(front)
    assert told.server.asked == []
    assert [listed["lastCode"] for listed in told.notifications()] == ["destination_gone"]


def test_resend_sends_waiting_and_refuses_delivered_notifications(
    front: Front, told: Told, server: Server
) -> None:
    told.store()
    (waiting,) = told.notifications()
    sql(front, "UPDATE deliveries SET due_at = now() + interval '1 day', is_ready = false")
    hastened = told.ask("POST", f"/notifications/{waiting['id']}/resend").get_json()
    assert (hastened["state"], hastened["attempts"]) == ("Waiting", 0)
    deliver(front)
    refused = told.ask("POST", f"/notifications/{waiting['id']}/resend")
    assert (refused.status_code, refused.get_json()["code"]) == (409, "delivery_not_dead")
    other = Told(make_connector(front), server)
    foreign = other.ask("POST", f"/notifications/{waiting['id']}/resend")
    assert (foreign.status_code, foreign.get_json()["code"]) == (404, "delivery_not_found")


def test_notifications_are_listed_page_by_page(front: Front, told: Told) -> None:
    for _ in range(3):
        told.store()
    first = told.ask("GET", "/notifications?limit=2").get_json()
    rest = told.ask("GET", f"/notifications?limit=2&cursor={first['nextCursor']}").get_json()
    ids = [listed["id"] for listed in (*first["notifications"], *rest["notifications"])]
    assert len(set(ids)) == 3
    assert rest["nextCursor"] is None
    assert told.ask("GET", "/notifications?state=dead").status_code == 422


@pytest.mark.parametrize(
    ("url", "refusal"),
    [
        ("http://bot.example/", SchemeRefused),
        ("ftp://bot.example/", SchemeRefused),
        ("https://user:password@bot.example/", UrlRefused),
        ("https://", UrlRefused),
        ("https://127.0.0.1/", AddressRefused),
        ("https://[::1]/", AddressRefused),
        ("https://169.254.169.254/", AddressRefused),
        ("https://bot.example:8443/", AddressRefused),
    ],
)
def test_an_endpoint_that_could_never_be_reached_is_refused(
    front: Front, connector: Connector, url: str, refusal: type[EgressError]
) -> None:
    with front.services.database.transaction() as session, pytest.raises(refusal):
        notification_endpoints.set_endpoint(
            session, make_settings(), actor=OPERATOR, distribution_id=connector.id, url=url
        )


def test_a_refused_endpoint_is_a_problem(told: Told) -> None:
    for body, status, code in (
        ({"url": "gopher://bot.example/"}, 422, "scheme_refused"),
        ({"url": ""}, 422, "validation_failed"),
        ({}, 422, "field_required"),
        ({"url": "https://bot.example/", "secret": "x"}, 400, "unknown_parameter"),
    ):
        answer = told.ask("PUT", "/notification-endpoint", json=body)
        assert (answer.status_code, answer.get_json()["code"]) == (status, code)


def test_the_address_is_kept_encrypted_and_out_of_the_audit(front: Front, told: Told) -> None:
    id_ = told.connector.id
    ((sealed,),) = sql(
        front, "SELECT url_encrypted FROM notification_endpoints WHERE distribution_id = :id", id=id_
    )
    audit = front.get(
        f"/admin/organizations/{told.connector.organization_id}/audit-events", told.admin.authorization
    ).get_json()["auditEvents"]
    assert "notification_endpoint.set" in [event["action"] for event in audit]
    assert "secret" not in bytes(sealed).decode() + json.dumps(audit)


def test_what_waits_is_not_posted_to_an_endpoint_that_was_disabled_meanwhile(
    front: Front, told: Told
) -> None:
    told.store()
    sql(front, "UPDATE notification_endpoints SET disabled_at = now()")
    deliver(front)
    assert told.server.asked == []
    assert [listed["state"] for listed in told.notifications()] == ["Dead"]
