"""A distribution that signs needs no token; every invalid signature gets the same 401."""

import json
import time
from dataclasses import replace
from uuid import uuid4

import pytest

from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.distributions import (
    disable_distribution,
    enable_distribution,
    rotate_webhook_secret,
)
from shared.media.networks.signatures import verify
from shared.media.networks.standard_webhooks import STANDARD_WEBHOOKS, webhook_credentials
from shared.media.networks.webhooks import SignatureInvalid, WebhookRequest
from tests.support.data.media_samples import PNG
from tests.support.web.web_process import Front
from tests.web.media.conftest import Connector, encode, make_connector, media, sign, sql

# The example of the Standard Webhooks specification and of its libraries.
EXAMPLE_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
EXAMPLE_HEADERS = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
EXAMPLE_BODY = b'{"test": 2432232314}'


def test_the_specifications_example_is_verified() -> None:
    example = WebhookRequest(
        method="POST",
        public_url="",
        query={},
        headers=EXAMPLE_HEADERS,
        body=EXAMPLE_BODY,
        received_at=1614265330,
    )
    verify(STANDARD_WEBHOOKS, example, webhook_credentials([EXAMPLE_SECRET]))
    for body, secrets in (
        (EXAMPLE_BODY + b" ", [EXAMPLE_SECRET]),
        (EXAMPLE_BODY, []),
        (EXAMPLE_BODY, ["whsec_AAAA"]),
    ):
        with pytest.raises(SignatureInvalid):
            verify(STANDARD_WEBHOOKS, replace(example, body=body), webhook_credentials(secrets))


def test_the_names_that_headers_had_before_the_standard_are_taken_too(connector: Connector) -> None:
    raw = json.dumps(media()).encode()
    signed = sign(raw, connector.webhook_secret)
    older = {name.replace("webhook-", "svix-"): value for name, value in signed.items()}
    json_type = {"Content-Type": "application/json"}
    mixed = {**older, "webhook-id": signed["webhook-id"]}
    statuses = [
        connector.front.post(connector.path, data=raw, headers=headers | json_type).status_code
        for headers in (older, mixed, {**older, "svix-id": "msg_2"})
    ]
    assert statuses == [202, 401, 401]


def test_a_signed_push_needs_no_token(connector: Connector) -> None:
    body = media()
    answer = connector.push_signed(body)
    assert answer.status_code == 202, answer.text
    assert connector.push(body).json == {**(answer.json or {}), "replayed": True}


def test_replaying_a_signed_push_changes_nothing(connector: Connector) -> None:
    body = media()
    first = connector.push_signed(body)
    again = connector.push_signed(body)
    assert (again.status_code, again.json) == (202, {**(first.json or {}), "replayed": True})


def test_bytes_may_come_signed_where_they_are_few(connector: Connector) -> None:
    raw, content_type = encode(("messageId", uuid4().hex), ("file", PNG), ("attachmentId", "a-1"))
    headers = {**sign(raw, connector.webhook_secret), "Content-Type": content_type}
    answer = connector.front.post(connector.path, data=raw, headers=headers)
    assert (answer.status_code, (answer.json or {})["state"]) == (202, "Stored")
    forged = connector.front.post(connector.path, data=raw.replace(b"a-1", b"a-2"), headers=headers)
    assert (forged.status_code, (forged.json or {})["code"]) == (401, "signature_invalid")


def test_a_signed_body_has_a_bound(connector: Connector) -> None:
    raw = b" " * ((1 << 20) + 1)
    headers = {**sign(raw, connector.webhook_secret), "Content-Type": "application/json"}
    answer = connector.front.post(connector.path, data=raw, headers=headers)
    assert (answer.status_code, (answer.json or {})["code"]) == (413, "content_too_large")


def test_the_replaced_secret_is_good_for_the_overlap_and_no_longer(front: Front) -> None:
    connector = make_connector(front)
    with front.services.database.transaction() as session:
        new = rotate_webhook_secret(
            session, front.settings, actor=OPERATOR, distribution_id=connector.id, overlap_seconds=60
        ).value
    assert connector.push_signed(media(), new).status_code == 202
    assert connector.push_signed(media()).status_code == 202
    sql(front, "UPDATE distributions SET previous_webhook_secret_expires_at = now()")
    assert connector.push_signed(media()).status_code == 401
    assert connector.push_signed(media(), new).status_code == 202


def test_several_signatures_may_come_and_one_must_be_good(connector: Connector) -> None:
    raw = json.dumps(media()).encode()
    headers = sign(raw, connector.webhook_secret)
    good = headers["webhook-signature"]
    for sent in (f"v1,AAAA {good}", f"v1a,xyz {good} v2,abc", f"{good} {good}"):
        answer = connector.front.post(
            connector.path,
            data=raw,
            headers={**headers, "webhook-signature": sent, "Content-Type": "application/json"},
        )
        assert answer.status_code == 202, sent


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("webhook-signature", ""),
        ("webhook-signature", "v1,"),
        ("webhook-signature", "v1,not base64!"),
        ("webhook-signature", "v1,\u00e9\u00e9\u00e9\u00e9"),
        ("webhook-signature", "v1"),
        ("webhook-signature", "v2,AAAA"),
        ("webhook-signature", "v1," + "A" * 4000),
        ("webhook-signature", " ".join(["v1,AAAA"] * 17)),
        ("webhook-id", ""),
        ("webhook-id", "other"),
        ("webhook-id", "x" * 300),
        ("webhook-id", "\u00e9"),
        ("webhook-timestamp", ""),
        ("webhook-timestamp", "soon"),
        ("webhook-timestamp", "-1"),
        ("webhook-timestamp", "1e9"),
        ("webhook-timestamp", "9" * 400),
        ("webhook-timestamp", "\u0661\u0662"),
    ],
)
def test_a_malformed_or_wrong_header_is_401(connector: Connector, name: str, value: str) -> None:
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        value = value.encode().decode("latin-1")
    answer = connector.push_signed(media(), **{name.replace("-", "_"): value})
    assert (answer.status_code, (answer.json or {})["code"]) == (401, "signature_invalid")
    assert "WWW-Authenticate" in answer.headers


@pytest.mark.parametrize("missing", ["webhook-id", "webhook-timestamp"])
def test_a_missing_header_is_401(connector: Connector, missing: str) -> None:
    raw = b"{}"
    headers = {name: value for name, value in sign(raw, connector.webhook_secret).items() if name != missing}
    answer = connector.front.post(connector.path, data=raw, headers=headers)
    assert (answer.status_code, (answer.json or {})["code"]) == (401, "signature_invalid")


@pytest.mark.parametrize(("seconds", "status"), [(-290, 202), (290, 202), (-310, 401), (310, 401)])
def test_a_signature_is_good_for_five_minutes_around_its_time(
    connector: Connector, seconds: int, status: int
) -> None:
    raw = json.dumps(media()).encode()
    headers = sign(raw, connector.webhook_secret, at=time.time() + seconds)
    answer = connector.front.post(
        connector.path, data=raw, headers={**headers, "Content-Type": "application/json"}
    )
    assert answer.status_code == status


@pytest.mark.parametrize("body", [b"\xff\xfe", b"", b"[1", b"null"])
def test_a_signed_body_that_is_no_push_is_400(connector: Connector, body: bytes) -> None:
    headers = {**sign(body, connector.webhook_secret), "Content-Type": "application/json"}
    answer = connector.front.post(connector.path, data=body, headers=headers)
    assert (answer.status_code, (answer.json or {})["code"]) == (400, "malformed_json")


def test_nobody_signs_for_a_distribution_that_is_unknown_another_or_disabled(
    front: Front, connector: Connector
) -> None:
    other = make_connector(front)
    raw = b"{}"
    headers = sign(raw, connector.webhook_secret)
    for distribution_id in (uuid4(), other.id):
        answer = front.post(f"/distributions/{distribution_id}/media", data=raw, headers=headers)
        assert (answer.status_code, (answer.json or {})["code"]) == (401, "signature_invalid")
    with front.services.database.transaction() as session:
        disable_distribution(session, actor=OPERATOR, distribution_id=other.id)
    assert other.push_signed(media()).status_code == 401
    assert other.push(media()).status_code == 401
    with front.services.database.transaction() as session:
        enable_distribution(session, actor=OPERATOR, distribution_id=other.id)
    assert other.push_signed(media()).status_code == 202


def test_a_signature_beside_a_token_is_not_looked_at(connector: Connector) -> None:
    body = media()
    headers = {"webhook-signature": "v1,AAAA"}
    assert connector.push(body, headers=headers).status_code == 202
    assert connector.push(body, "Bearer nonsense", headers=headers).status_code == 401


def test_strangers_who_guess_signatures_are_slowed_down_and_their_bytes_not_kept(
    connector: Connector,
) -> None:
    front = connector.front
    before = sql(front, "SELECT count(*) FROM blobs")
    raw, content_type = encode(("file", PNG))
    headers = {**sign(raw, "whsec_AAAA"), "Content-Type": content_type}
    assert front.post(connector.path, data=raw, headers=headers).status_code == 401
    assert sql(front, "SELECT count(*) FROM blobs") == before
