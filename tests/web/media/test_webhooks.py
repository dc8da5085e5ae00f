"""Networks push what they have, in their own ways; others learn nothing."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text
from werkzeug.test import TestResponse

from deploy.embedded.valkey import EmbeddedValkey
from shared import failpoints
from shared.fairness.admission import ANONYMOUS, PoolKey
from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.distributions import (
    disable_distribution,
    enable_distribution,
    update_distribution,
)
from shared.identity.directory.organizations import resume_organization, suspend_organization
from shared.media.importing import import_queue
from shared.media.importing.paused_imports import resume_paused
from tests.support import networks
from tests.support.data.media_samples import JPEG, OGG, PDF, PNG
from tests.support.web.web_process import Front, open_front
from tests.web.media.webhook_senders import Line, open_line
from web.http.slots import Admission

FORGED = {"X-Slack-Signature": "v0=00"}


@pytest.fixture(params=networks.STAND_INS, ids=lambda make: make.name)
def line(request: pytest.FixtureRequest, front: Front) -> Line:
    make: type[networks.StandIn] = request.param
    return open_line(front, make())


def message(line: Line, *samples: Any) -> bytes:
    kept = [line.stand_in.keep(sample) for sample in samples or (PNG,)]
    return line.stand_in.message(*kept, message=str(uuid4().int % 100_000))


def test_a_webhook_queues_an_import_for_each_attachment(line: Line) -> None:
    samples = (JPEG,) if line.stand_in.sends_files_singly else (JPEG, PDF, OGG)
    answer = line.send(message(line, *samples))
    assert answer.status_code == 200, answer.text
    queued = line.imports()
    assert [one.network for one in queued] == [line.stand_in.name] * len(samples)
    assert {one.attachment_id for one in queued} <= {
        *line.stand_in.kept,
        *(i[-12:] for i in line.stand_in.kept),
    }
    assert {one.organization_id for one in queued} == {line.organization_id}
    assert {(one.state, one.headers_encrypted) for one in queued} == {("Queued", None)}


def test_a_webhook_is_counted_for_its_organization_once_its_signature_is_verified(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves: list[tuple[Any, Any]] = []
    move = Admission.move

    def note(admission: Admission, key: PoolKey) -> None:
        moves.append((admission.key.tenant, key.tenant))
        move(admission, key)

    monkeypatch.setattr(Admission, "move", note)
    assert line.send(message(line)).status_code == 200
    assert moves == [(ANONYMOUS, line.organization_id)]


def test_concurrent_webhooks_create_one_import(front: Front) -> None:
    line = open_line(front, networks.SlackStandIn())
    body = message(line)
    headers = line.stand_in.sign(body)

    def send(_: int) -> int:
        return front.app.test_client().post(line.path, data=body, headers=headers).status_code

    with ThreadPoolExecutor(12) as pool:
        assert set(pool.map(send, range(50))) == {200}
    assert len(line.imports()) == 1


def test_webhook_without_attachments_is_acknowledged(front: Front) -> None:
    for stand_in, body in (
        (networks.SlackStandIn(), b'{"type": "event_callback", "event": {"type": "message", "text": "hi"}}'),
        (networks.TwilioStandIn(), b"MessageSid=SM1&NumMedia=0&Body=hi"),
        (
            networks.TelegramStandIn(),
            b'{"update_id": 1, "message": {"message_id": 1, "chat": {"id": 1}, "text": "hi"}}',
        ),
        (networks.WhatsAppStandIn(), b'{"object": "whatsapp_business_account", "entry": []}'),
        (networks.DiscordStandIn(), b'{"type": 2, "id": "1", "data": {"name": "ping"}}'),
        (networks.SlackStandIn(), b"not json"),
    ):
        line = open_line(front, stand_in)
        answer = line.send(body)
        assert answer.status_code == 200, answer.text
        assert line.imports() == []


# Strangers


def essence(answer: TestResponse) -> tuple[Any, ...]:
    """Return everything in a response but what identifies the request."""
    body = answer.get_json()
    body.pop("requestId")
    headers = {name: value for name, value in answer.headers if name not in ("X-Request-Id", "Date")}
    return answer.status_code, body, headers


def test_whoever_cannot_sign_hears_the_same_whatever_is_there(line: Line, front: Front) -> None:
    body = message(line)
    refused = line.send(body, dict.fromkeys(signature_headers(line.stand_in), "0" * 64))
    assert (refused.status_code, refused.get_json()["code"]) == (401, "signature_invalid")
    unsigned = front.post(line.path, data=body, headers={"Content-Type": line.stand_in.content_type})
    absent = replace(line, distribution_id=uuid4())
    elsewhere = open_line(front, line.stand_in, is_set_up=False)
    answers = [unsigned, absent.send(body), elsewhere.send(body)]
    with front.services.database.transaction() as session:
        disable_distribution(session, actor=OPERATOR, distribution_id=line.distribution_id)
    answers.append(line.send(body))
    with front.services.database.transaction() as session:
        enable_distribution(session, actor=OPERATOR, distribution_id=line.distribution_id)
        update_distribution(session, actor=OPERATOR, distribution_id=line.distribution_id, networks=["other"])
    answers.append(line.send(body))
    assert [essence(answer) for answer in answers] == [essence(refused)] * len(answers)
    assert line.imports() == []


def signature_headers(stand_in: networks.StandIn) -> list[str]:
    return [name for name in stand_in.sign(b"{}") if name != "Content-Type"]


def test_a_webhook_that_is_replayed_to_another_distribution_is_refused(front: Front) -> None:
    twilio = networks.TwilioStandIn()
    one, other = open_line(front, twilio), open_line(front, twilio)
    body = message(one)
    headers = twilio.sign(body, url=one.url)
    assert front.post(other.path, data=body, headers=headers).status_code == 401
    assert front.post(one.path, data=body, headers=headers).status_code == 200


@pytest.mark.parametrize("value", ["", "é", "\xff\xfe", "v0=", "sha256=", "a" * 8000, "\t"])
def test_malformed_headers_are_refused_and_break_nothing(line: Line, value: str) -> None:
    body = message(line)
    for name in (*signature_headers(line.stand_in), "Content-Type"):
        if name == "Content-Type" and line.stand_in.name != "twilio":
            continue
        answer = line.send(body, {name: value})
        assert answer.status_code == 401, (name, answer.text)


def test_doubled_signatures_are_refused(line: Line, front: Front) -> None:
    body = message(line)
    headers = list(line.stand_in.sign(body, url=line.url).items())
    doubled = [*headers, *(pair for pair in headers if pair[0] != "Content-Type")]
    assert front.post(line.path, data=body, headers=doubled).status_code == 401


def test_a_body_that_is_too_large_is_refused_for_everybody(line: Line) -> None:
    for at in (line, replace(line, distribution_id=uuid4())):
        answer = at.send(b"x" * ((1 << 20) + 1))
        assert (answer.status_code, answer.get_json()["code"]) == (413, "content_too_large")


def test_guessing_is_slowed_down_and_the_network_is_not(
    database_url: str, valkey_server: EmbeddedValkey, tmp_path: Path
) -> None:
    with open_front(database_url, valkey_server.url, tmp_path, failed_logins_per_minute=3) as front:
        front.services.valkey.flushdb()  # other tests may have guessed from this address
        line = open_line(front, networks.SlackStandIn())
        forged = [line.send(message(line), FORGED).status_code for _ in range(5)]
        assert (forged[:3], forged[-1]) == ([401] * 3, 429)
        assert line.send(message(line)).status_code == 200


def test_a_network_that_sends_too_much_is_told_to_wait(
    database_url: str, valkey_server: EmbeddedValkey, tmp_path: Path
) -> None:
    with open_front(database_url, valkey_server.url, tmp_path, rate_limit_per_minute=2) as front:
        line, other = open_line(front, networks.SlackStandIn()), open_line(front, networks.SlackStandIn())
        answers = [line.send(message(line)) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert int(answers[-1].headers["Retry-After"]) > 0
        assert len(line.imports()) == 2
        assert other.send(message(other)).status_code == 200


def test_there_is_nothing_at_other_addresses(line: Line, front: Front) -> None:
    below = f"/distributions/{line.distribution_id}/webhooks"
    assert front.post(f"{below}/teams").status_code == 404
    assert front.post("/distributions/1/webhooks/slack").status_code == 404
    assert front.get(f"{below}/slack").status_code == 401
    assert front.put(f"{below}/slack").status_code == 405


# What the networks expect to hear


def test_slacks_challenge_is_repeated(front: Front) -> None:
    line = open_line(front, networks.SlackStandIn())
    challenge = "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"
    body = json.dumps({"token": "x", "challenge": challenge, "type": "url_verification"}).encode()
    assert line.send(body).get_json() == {"challenge": challenge}
    assert line.send(body, FORGED).status_code == 401


def test_whatsapps_handshake_is_answered(front: Front) -> None:
    line = open_line(front, networks.WhatsAppStandIn())
    asked = {"hub.mode": "subscribe", "hub.challenge": "1158201444"}
    good = front.get(
        line.path, query_string={**asked, "hub.verify_token": line.stand_in.settings["verifyToken"]}
    )
    assert (good.status_code, good.text, good.mimetype) == (200, "1158201444", "text/plain")
    assert good.headers["X-Content-Type-Options"] == "nosniff"
    absent = f"/distributions/{uuid4()}/webhooks/whatsapp"
    for path, query in ((line.path, {}), (line.path, {**asked, "hub.verify_token": "no"}), (absent, asked)):
        refused = front.get(path, query_string=query)
        assert (refused.status_code, refused.get_json()["code"]) == (401, "signature_invalid")


def test_discord_gets_the_response_of_each_webhook_type(front: Front) -> None:
    line = open_line(front, networks.DiscordStandIn())
    for sent, answered in (
        ({"type": 1, "id": "1", "token": "x"}, {"type": 1}),
        ({"type": 2, "id": "1", "data": {}}, {"type": 4, "data": {"content": "Received.", "flags": 64}}),
        ({"type": 3, "id": "1"}, {"type": 6}),
        ({"type": 4, "id": "1"}, {"type": 8, "data": {"choices": []}}),
    ):
        assert line.send(json.dumps(sent).encode()).get_json() == answered
    for event in (
        {"version": 1, "type": 0},
        {"version": 1, "type": 1, "event": {"type": "ENTITLEMENT_CREATE"}},
    ):
        answer = line.send(json.dumps(event).encode())
        assert (answer.status_code, answer.data) == (204, b"")
    assert line.send(b'{"type": 1}', {"X-Signature-Ed25519": "0" * 128}).status_code == 401


def test_twilio_hears_that_there_is_nothing_to_do(front: Front) -> None:
    line = open_line(front, networks.TwilioStandIn())
    answer = line.send(message(line))
    assert answer.mimetype == "text/xml"
    assert answer.data.endswith(b"<Response/>")


# Twilio's addresses


@pytest.mark.parametrize(
    "base_url", ["https://qm.example", "https://qm.example:443", "https://qm.example/media"]
)
def test_twilios_address_is_the_public_one_whatever_the_proxy_says(
    database_url: str, valkey_server: EmbeddedValkey, tmp_path: Path, base_url: str
) -> None:
    with open_front(database_url, valkey_server.url, tmp_path, base_url=base_url) as front:
        line = open_line(front, networks.TwilioStandIn())
        body = message(line)
        for public in (
            line.url,
            line.url.replace(":443", ""),
            line.url.replace("qm.example/", "qm.example:443/"),
        ):
            headers = line.stand_in.sign(body, url=f"{public}?a=1&b=%20")
            proxied = {
                "Host": "10.0.0.7:8080",
                "X-Forwarded-Proto": "http",
                "X-Forwarded-Host": "evil.example",
            }
            sent = front.post(f"{line.path}?a=1&b=%20", data=body, headers={**headers, **proxied})
            assert sent.status_code == 200, public
        forged = line.stand_in.sign(body, url=f"http://evil.example{line.path}")
        assert front.post(line.path, data=body, headers={**forged, **proxied}).status_code == 401
        assert len(line.imports()) == 1


def test_twilios_json_is_believed_by_its_digest(front: Front) -> None:
    line = open_line(front, networks.TwilioStandIn())
    file_id = line.stand_in.keep(PNG)
    assert isinstance(line.stand_in, networks.TwilioStandIn)
    body = json.dumps(line.stand_in.parameters(file_id)).encode()
    query = f"bodySHA256={hashlib.sha256(body).hexdigest()}"
    headers = {**line.stand_in.sign(b"", url=f"{line.url}?{query}"), "Content-Type": "application/json"}
    assert front.post(f"{line.path}?{query}", data=body + b" ", headers=headers).status_code == 401
    assert front.post(f"{line.path}?{query}", data=body, headers=headers).status_code == 200
    assert [one.attachment_id for one in line.imports()] == [file_id]


# Secrets that change


def test_a_secret_is_replaced_without_a_webhook_that_fails(front: Front) -> None:
    old, new = networks.DiscordStandIn(), networks.DiscordStandIn()
    line = open_line(front, old)
    assert line.put_settings(new.settings).status_code == 200
    changed = replace(line, stand_in=new)
    assert [line.send(message(line)).status_code, changed.send(message(changed)).status_code] == [200, 200]
    newest = replace(line, stand_in=networks.DiscordStandIn())
    newest.put_settings(overlapSeconds=0)
    codes = [at.send(message(at)).status_code for at in (line, changed, newest)]
    assert codes == [401, 401, 200]


def test_a_secret_that_was_replaced_is_refused_once_its_time_is_over(front: Front) -> None:
    line = open_line(front, networks.DiscordStandIn())
    line.put_settings(networks.DiscordStandIn().settings, overlapSeconds=60)
    assert line.send(message(line)).status_code == 200
    with front.services.database.autocommit() as session:
        statement = "UPDATE network_settings SET previous_expires_at = now() WHERE distribution_id = :id"
        session.execute(text(f"{statement} AND previous_expires_at > now()"), {"id": line.distribution_id})
    assert line.send(message(line)).status_code == 401


# What can go wrong


@pytest.mark.parametrize(
    ("point", "kept"), [("webhook.verified", 0), ("webhook.before_commit", 0), ("webhook.before_answer", 1)]
)
def test_a_webhook_that_breaks_off_is_taken_in_when_it_comes_again(
    line: Line, monkeypatch: pytest.MonkeyPatch, point: str, kept: int
) -> None:
    body = message(line)

    def reach(name: str) -> None:
        if name == point:
            raise RuntimeError(name)

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "hit", reach)
        assert line.send(body).status_code == 500
    assert len(line.imports()) == kept
    assert line.send(body).status_code == 200
    assert len(line.imports()) == 1


def test_a_suspended_organizations_webhook_is_acknowledged_and_held(front: Front) -> None:
    line = open_line(front, networks.SlackStandIn())
    with front.services.database.transaction() as session:
        suspend_organization(session, actor=OPERATOR, organization_id=line.organization_id)
    body = message(line)
    assert line.send(body).status_code == 200
    assert line.send(body).status_code == 200
    assert line.send(message(line), FORGED).status_code == 401
    (held,) = line.imports()
    assert (held.state, held.code, held.is_ready) == ("Held", "organization_suspended", False)
    assert resume_paused(front.services.database) == 0
    with front.services.database.transaction() as session:
        resume_organization(session, actor=OPERATOR, organization_id=line.organization_id)
    assert resume_paused(front.services.database) == 1
    assert [one.state for one in line.imports()] == ["Queued"]


def test_what_is_held_for_a_distribution_has_its_bound(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    line = open_line(front, networks.SlackStandIn())
    monkeypatch.setattr(import_queue, "PAUSED_PER_QUEUED", 2 / front.services.settings.queued_imports)
    with front.services.database.transaction() as session:
        suspend_organization(session, actor=OPERATOR, organization_id=line.organization_id)
    answers = [line.send(message(line)).status_code for _ in range(3)]
    assert answers == [200, 200, 429]
    assert len(line.imports()) == 2


def test_no_secret_is_logged(line: Line, caplog: pytest.LogCaptureFixture) -> None:
    line.put_settings()
    line.send(message(line))
    for secret in line.stand_in.settings.values():
        line.send(b"{", dict.fromkeys(signature_headers(line.stand_in), secret))
    said = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    assert caplog.records
    assert not [name for name, value in line.stand_in.settings.items() if value in said]
