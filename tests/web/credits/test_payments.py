"""Payment events: a signed event is entered exactly once, however often it arrives, and nothing else is entered."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from werkzeug.test import TestResponse

from deploy.embedded.valkey import EmbeddedValkey
from shared.config.settings import load_settings
from shared.config.settings_errors import SettingsInvalid
from shared.credits.balances import get_balance
from shared.credits.payments.payment_entries import PaymentResult, enter_payment_event
from shared.credits.reconciliation import reconcile
from tests.support.web.web_process import Front, open_front

SECRET, OLDER = "whsec_of_the_test_endpoint", "whsec_that_was_replaced"
KEY = b"thirty-two bytes of a secret....."
SOURCES = {
    "stripe": {
        "kind": "stripe",
        "secrets": [SECRET, OLDER],
        "credits_per_unit": {"usd": "0.01", "jpy": "0.0067"},
    },
    "shop": {
        "kind": "standard",
        "secrets": [f"whsec_{base64.b64encode(KEY).decode()}"],
        "credits_per_unit": {"eur": "0.011"},
    },
}


@pytest.fixture(scope="module")
def front(
    database_url: str, valkey_server: EmbeddedValkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Front]:
    """A front with two configured payment systems."""
    directory: Path = tmp_path_factory.mktemp("blobs")
    with open_front(database_url, valkey_server.url, directory, payment_sources=SOURCES) as front:
        yield front


class Payer:
    """An organization, and payment events for it."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.id = front.identity.organization().id
        self.payment = f"pi_{uuid4().hex}"

    @property
    def balance(self) -> int:
        with self.front.services.database.autocommit() as session:
            return get_balance(session, self.id).balance

    def discrepancies(self) -> list[Any]:
        with self.front.services.database.transaction() as session:
            return reconcile(session, self.id)

    def event(self, kind: str, **fields: Any) -> dict[str, Any]:
        metadata = {"organization_id": str(self.id), **fields.pop("metadata", {})}
        told = {"object": "x", "currency": "usd", "metadata": metadata, **fields}
        return {"id": f"evt_{uuid4().hex}", "object": "event", "type": kind, "data": {"object": told}}

    def paid(self, amount: int = 2_500, **fields: Any) -> dict[str, Any]:
        return self.event(
            "payment_intent.succeeded", **{"id": self.payment, "amount_received": amount, **fields}
        )

    def session(self, amount: int = 2_500, **fields: Any) -> dict[str, Any]:
        more = {"id": "cs_1", "payment_intent": self.payment, "amount_total": amount, **fields}
        return self.event("checkout.session.completed", **{"payment_status": "paid", **more})

    def refunded(self, refunded: int, amount: int = 2_500) -> dict[str, Any]:
        return self.event(
            "charge.refunded",
            id="ch_1",
            payment_intent=self.payment,
            amount=amount,
            amount_refunded=refunded,
        )

    def tell(self, event: Any, **options: Any) -> TestResponse:
        return send_stripe(self.front, json.dumps(event).encode(), **options)

    def result(self, event: Any) -> str:
        answer = self.tell(event)
        assert answer.status_code == 200, answer.text
        result: str = answer.get_json()["result"]
        return result


def stripe_header(body: bytes, *, secret: str = SECRET, at: int | None = None) -> str:
    moment = int(time.time()) if at is None else at
    signature = hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={moment},v1={signature},v0={'0' * 64}"


def send_stripe(
    front: Front, body: bytes, *, header: str | None = None, source: str = "stripe"
) -> TestResponse:
    headers = {"Content-Type": "application/json", "Stripe-Signature": header or stripe_header(body)}
    return front.post(f"/payments/{source}/events", data=body, headers=headers)


@pytest.fixture
def payer(front: Front) -> Payer:
    return Payer(front)


def test_a_payment_adds_credits_at_the_rate_of_its_currency(payer: Payer) -> None:
    assert payer.result(payer.paid()) == "credited"
    assert payer.balance == 25_000_000
    yen = Payer(payer.front)
    assert yen.result(yen.paid(333, currency="jpy")) == "credited"
    assert yen.balance == 333 * 6_700


def test_a_payment_may_name_its_credits(payer: Payer) -> None:
    assert payer.result(payer.paid(metadata={"credits": "30.5"}, currency="chf")) == "credited"
    assert payer.balance == 30_500_000


def test_repeated_events_and_payments_change_nothing(payer: Payer) -> None:
    paid = payer.paid()
    results = [
        payer.result(event) for event in (paid, paid, payer.session(), payer.paid(metadata={"credits": "99"}))
    ]
    assert results == ["credited", "repeated", "repeated", "repeated"]
    assert payer.balance == 25_000_000
    assert payer.discrepancies() == []


def test_a_session_is_entered_once_it_is_paid(payer: Payer) -> None:
    assert payer.result(payer.session(payment_status="unpaid")) == "ignored"
    late = {**payer.session(), "type": "checkout.session.async_payment_succeeded"}
    assert payer.result(late) == "credited"
    assert payer.result(payer.refunded(2_500)) == "refunded"
    assert payer.balance == 0


def test_refunds_are_deducted_in_any_order(payer: Payer) -> None:
    payer.result(payer.paid(999))
    told = [
        payer.refunded(333, 999),
        payer.refunded(700, 999),
        payer.refunded(333, 999),
        payer.refunded(700, 999),
    ]
    results = [payer.result(event) for event in told]
    assert results == ["refunded", "refunded", "repeated", "repeated"]
    assert payer.balance == 9_990_000 - 7_000_000
    assert payer.result(payer.refunded(999, 999)) == "refunded"
    assert payer.balance == 0
    assert payer.discrepancies() == []


def test_payments_with_a_common_id_prefix_are_refunded_separately(payer: Payer) -> None:
    longer = f"{payer.payment}:1"
    payer.result(payer.paid())
    payer.result(payer.paid(id=longer))
    refund = payer.refunded(2_500)
    refund["data"]["object"]["payment_intent"] = longer
    assert payer.result(refund) == "refunded"
    assert payer.result(payer.refunded(2_500)) == "refunded"
    assert payer.balance == 0
    assert payer.discrepancies() == []


def test_refund_of_an_unknown_payment_must_be_sent_again(payer: Payer) -> None:
    answer = payer.tell(payer.refunded(100))
    assert (answer.status_code, answer.get_json()["code"]) == (409, "payment_unknown")
    payer.result(payer.paid())
    assert payer.result(payer.refunded(100)) == "refunded"


def test_racing_events_of_a_payment_are_entered_once(payer: Payer) -> None:
    source = payer.front.settings.payment_sources["stripe"]

    def enter(event: dict[str, Any]) -> PaymentResult:
        with payer.front.services.database.transaction() as session:
            return enter_payment_event(session, name="stripe", source=source, event=event)

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(enter, [payer.paid()] * 4 + [payer.session()] * 4))
        assert results.count(PaymentResult.CREDITED) == 1
        refunds = [payer.refunded(amount) for amount in (500, 1_000, 500, 2_500, 1_000)]
        list(threads.map(enter, refunds))
    assert payer.balance == 0
    assert payer.discrepancies() == []


@pytest.mark.parametrize(
    "event",
    [
        {"type": "customer.created", "data": {"object": {}}},
        {"type": "payment_intent.succeeded", "data": {"object": {"id": "pi_1", "amount_received": 5}}},
        {"type": "payment_intent.succeeded", "data": {"object": {"metadata": {"order": "7"}}}},
        {"type": "payment_intent.succeeded"},
        {},
        [],
        7,
    ],
)
def test_an_event_that_is_not_about_credits_is_ignored(payer: Payer, event: Any) -> None:
    assert payer.result(event) == "ignored"


@pytest.mark.parametrize(
    "changed",
    [
        {"currency": "xyz"},
        {"currency": None},
        {"amount_received": "2500"},
        {"amount_received": 2.5},
        {"amount_received": -1},
        {"amount_received": True},
        {"id": ""},
        {"id": "x" * 200},
        {"metadata": {"organization_id": "acme"}},
        {"metadata": {"credits": "1e3"}},
        {"metadata": {"credits": "-1"}},
    ],
)
def test_payment_that_cannot_become_credits_fails_visibly(payer: Payer, changed: dict[str, Any]) -> None:
    answer = payer.tell(payer.paid(**changed))
    assert (answer.status_code, answer.get_json()["code"]) == (422, "payment_not_understood")
    assert payer.balance == 0


def test_a_payment_for_an_organization_that_does_not_exist_fails(payer: Payer) -> None:
    answer = payer.tell(payer.paid(metadata={"organization_id": str(uuid4())}))
    assert answer.status_code == 404


@pytest.mark.parametrize("amount", [0, 10**15])
def test_an_amount_that_no_top_up_may_have_fails(payer: Payer, amount: int) -> None:
    assert payer.tell(payer.paid(amount)).status_code == 422
    assert payer.balance == 0


@pytest.mark.parametrize(
    "header",
    [
        "",
        "t=1,v1=00",
        "nonsense",
        ",,,=,t=",
        "t=,v1=",
        "v1=" + "0" * 64,
        "t=" + "9" * 40 + ",v1=00",
        "t=1\u00e9,v1=\u00e9",
    ],
)
def test_a_signature_that_is_none_is_refused(payer: Payer, header: str) -> None:
    refused(payer.tell(payer.paid(), header=header or "t="))
    assert payer.balance == 0


def refused(answer: TestResponse) -> None:
    assert (answer.status_code, answer.get_json()["code"]) == (401, "signature_invalid")


def test_payment_signature_is_valid_for_five_minutes_its_body_and_its_source(
    payer: Payer,
) -> None:
    body = json.dumps(payer.paid()).encode()
    now = int(time.time())
    for header in (
        stripe_header(body, at=now - 301),
        stripe_header(body, at=now + 310),
        stripe_header(body, secret="whsec_of_somebody_else"),
        stripe_header(body + b" "),
        stripe_header(body).replace("v1=", "v0="),
    ):
        refused(send_stripe(payer.front, body, header=header))
    refused(send_stripe(payer.front, body, source="shop"))
    refused(send_stripe(payer.front, body, source="unknown"))
    assert payer.balance == 0
    assert send_stripe(payer.front, body, header=stripe_header(body, secret=OLDER)).status_code == 200
    assert payer.balance == 25_000_000


def test_a_body_that_is_not_json_is_refused_after_its_signature_alone(payer: Payer) -> None:
    answer = send_stripe(payer.front, b"{")
    assert (answer.status_code, answer.get_json()["code"]) == (400, "malformed_json")
    refused(send_stripe(payer.front, b"{", header="t=1,v1=00"))


def send_plain(front: Front, event: Any, *, key: bytes = KEY) -> TestResponse:
    body, moment = json.dumps(event).encode(), int(time.time())
    made = hmac.new(key, f"msg_1.{moment}.".encode() + body, hashlib.sha256).digest()
    headers = {
        "Content-Type": "application/json",
        "webhook-id": "msg_1",
        "webhook-timestamp": str(moment),
        "webhook-signature": f"v1,{base64.b64encode(made).decode()}",
    }
    return front.post("/payments/shop/events", data=body, headers=headers)


def test_payment_events_may_be_standard_webhooks(payer: Payer) -> None:
    metadata = {"organization_id": str(payer.id)}
    paid = {"id": "order 7", "amount": 1_000, "currency": "EUR", "metadata": metadata}
    succeeded = {"type": "payment.succeeded", "data": paid}
    refused(send_plain(payer.front, succeeded, key=b"another secret of enough bytes"))
    assert send_plain(payer.front, succeeded).get_json() == {"result": "credited"}
    assert payer.balance == 11_000_000
    back = {"type": "payment.refunded", "data": {**paid, "amount_refunded": 500}}
    assert [send_plain(payer.front, back).get_json()["result"] for _ in range(2)] == ["refunded", "repeated"]
    assert payer.balance == 5_500_000
    assert send_plain(payer.front, {"type": "payment.created"}).get_json() == {"result": "ignored"}


def test_the_same_payment_of_two_sources_are_two_payments(payer: Payer) -> None:
    payer.result(payer.paid())
    metadata = {"organization_id": str(payer.id), "credits": "1"}
    told = {"type": "payment.succeeded", "data": {"id": payer.payment, "metadata": metadata}}
    assert send_plain(payer.front, told).get_json() == {"result": "credited"}
    assert payer.balance == 26_000_000


@pytest.mark.parametrize(
    "wrong",
    [
        "{",
        '{"shop": {"kind": "stripe", "secrets": ["short-one"]}}',
        '{"shop": {"kind": "standard", "secrets": ["whsec_of_the_shop_not_base64"]}}',
        '{"shop": {"kind": "paypal", "secrets": ["whsec_of_the_test_endpoint"]}}',
        '{"a shop": {"kind": "stripe", "secrets": ["whsec_of_the_test_endpoint"]}}',
    ],
)
def test_sources_that_cannot_be_used_are_refused_without_telling_their_secrets(
    monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    needed = {"DATABASE_URL": "postgresql://x", "REDIS_URL": "redis://x", "BLOB_STORE": "file:///x"}
    for name, value in {**needed, "ENCRYPTION_KEYS": "k", "PAYMENT_SOURCES": wrong}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsInvalid, match="PAYMENT_SOURCES is not usable") as refusal:
        load_settings()
    assert "whsec" not in str(refusal.value)
    assert "short-one" not in str(refusal.value)
