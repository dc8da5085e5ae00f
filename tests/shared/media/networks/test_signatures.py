"""Only requests that a network signed are accepted: any changed byte or an old timestamp is refused."""

import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules
from urllib.parse import urlencode

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shared.media import networks
from shared.media.networks.registry import NETWORKS
from shared.media.networks.signatures import Ed25519, Subject, WebhookSignature, verify
from shared.media.networks.webhooks import SignatureInvalid, WebhookRequest, previous
from tests.shared.media.networks.requests import URL, network_of, request, signed, stand_ins
from tests.support.data.media_samples import PNG
from tests.support.networks import StandIn, WhatsAppStandIn

FORM = "application/x-www-form-urlencoded"
NOTHING_LIKE_IT = (
    "",
    " ",
    "v0=",
    "sha256=",
    "v0=zz",
    "é",
    "\udcff",
    "0" * 128,
    "=" * 28,
    "a" * 70_000,
    "a, b",
)


@pytest.fixture(params=stand_ins(), ids=lambda one: one.name)
def network(request: pytest.FixtureRequest) -> StandIn:
    stand_in: StandIn = request.param
    return stand_in


def webhook(stand_in: StandIn) -> WebhookRequest:
    return signed(stand_in, stand_in.message(stand_in.keep(PNG)))


def refuse(stand_in: StandIn, forged: WebhookRequest) -> None:
    with pytest.raises(SignatureInvalid):
        verify(network_of(stand_in).signature, forged, stand_in.settings)


def header_of(stand_in: StandIn) -> str:
    return network_of(stand_in).signature.header.lower()


def proof_of(stand_in: StandIn) -> list[str]:
    """The headers by which a network proves itself, in lower case: the signature, and the time if it signs one."""
    timestamp = network_of(stand_in).signature.timestamp
    return [header_of(stand_in), *([timestamp.header.lower()] if timestamp else [])]


def with_header(sent: WebhookRequest, name: str, value: str) -> WebhookRequest:
    return replace(sent, headers={**sent.headers, name: value})


# The examples that the networks publish.


def test_slacks_documented_example_is_accepted() -> None:
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
        b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
        b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F"
        b"96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    signature = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    headers = {"X-Slack-Request-Timestamp": "1531420618", "X-Slack-Signature": signature}
    sent = request(body, headers, received_at=1531420618)
    verify(NETWORKS["slack"].signature, sent, {"signingSecret": "8f742231b10e8888abcd99yyyzzz85a5"})


CALL = {
    "CallSid": "CA1234567890ABCDE",
    "Caller": "+14158675309",
    "Digits": "1234",
    "From": "+14158675309",
    "To": "+18005551212",
}
OLDER_CALL = CALL | {"Caller": "+12349013030", "From": "+12349013030"}
TWILIO_URL = "https://mycompany.com/myapp.php?foo=1&bar=2"
TWILIO_EXAMPLES = [
    (TWILIO_URL, CALL, "RSOYDt4T1cUTdK1PDd93/VVr8B8="),
    (TWILIO_URL, OLDER_CALL, "0/KCTR6DLpKmkAf8muzZqo1nDgQ="),
    # Of the helper libraries' own tests: Twilio signs with the port or without it.
    (TWILIO_URL.replace(".com", ".com:1234"), CALL, "RSOYDt4T1cUTdK1PDd93/VVr8B8="),
    (TWILIO_URL, CALL, "kvajT1Ptam85bY51eRf/AJRuM3w="),
    (TWILIO_URL.replace("https", "http"), CALL, "0ZXoZLH/DfblKGATFgpif+LLRf4="),
    (
        TWILIO_URL.replace("https://mycompany.com", "http://mycompany.com:1234"),
        CALL,
        "Zmvh+3yNM1Phv2jhDCwEM3q5ebU=",
    ),
    # A parameter that stands several times counts once for each of its values.
    (
        TWILIO_URL,
        [
            ("Sid", "CA123"),
            ("SidAccount", "AC123"),
            ("Digits", "5678"),
            ("Digits", "1234"),
            ("Digits", "1234"),
        ],
        "IK+Dwps556ElfBT0I3Rgjkr1wJU=",
    ),
]


@pytest.mark.parametrize(("url", "parameters", "signature"), TWILIO_EXAMPLES)
def test_twilios_published_examples_are_accepted(
    url: str, parameters: dict[str, str], signature: str
) -> None:
    headers = {"Content-Type": FORM, "X-Twilio-Signature": signature}
    sent = request(urlencode(parameters).encode(), headers, url=url)
    verify(NETWORKS["twilio"].signature, sent, {"authToken": "12345"})
    with pytest.raises(SignatureInvalid):
        verify(
            NETWORKS["twilio"].signature,
            replace(sent, public_url=url.replace("foo", "fou")),
            {"authToken": "12345"},
        )


TWILIO_JSON = b'{"property": "value", "boolean": true}'
TWILIO_JSON_SHA256 = "0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620"
TWILIO_JSON_URL = f"{TWILIO_URL}&bodySHA256={TWILIO_JSON_SHA256}"


@pytest.mark.parametrize(
    ("url", "signature"),
    [
        (TWILIO_JSON_URL, "a9nBmqA0ju/hNViExpshrM61xv4="),
        (f"https://mycompany.com/myapp.php?bodySHA256={TWILIO_JSON_SHA256}", "y77kIzt2vzLz71DgmJGsen2scGs="),
    ],
)
def test_twilios_published_json_examples_are_accepted(url: str, signature: str) -> None:
    headers = {"Content-Type": "application/json", "X-Twilio-Signature": signature}
    sent = request(TWILIO_JSON, headers, url=url)
    verify(NETWORKS["twilio"].signature, sent, {"authToken": "12345"})
    with pytest.raises(SignatureInvalid):
        verify(NETWORKS["twilio"].signature, replace(sent, body=TWILIO_JSON + b" "), {"authToken": "12345"})


def test_a_json_body_of_twilio_without_its_digest_is_refused() -> None:
    headers = {"Content-Type": "application/json", "X-Twilio-Signature": "RSOYDt4T1cUTdK1PDd93/VVr8B8="}
    with pytest.raises(SignatureInvalid):
        verify(
            NETWORKS["twilio"].signature,
            request(TWILIO_JSON, headers, url=TWILIO_URL),
            {"authToken": "12345"},
        )


def test_the_published_example_of_whatsapps_scheme_is_accepted() -> None:
    """GitHub signs in the same way and documents one."""
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    sent = request(b"Hello, World!", {"X-Hub-Signature-256": signature})
    verify(NETWORKS["whatsapp"].signature, sent, {"appSecret": "It's a Secret to Everybody"})


# Of every network.


def test_a_signed_webhook_is_accepted(network: StandIn) -> None:
    verify(network_of(network).signature, webhook(network), network.settings)


def test_a_webhook_without_a_signature_is_refused(network: StandIn) -> None:
    sent = webhook(network)
    for missing in proof_of(network):
        left = {name: value for name, value in sent.headers.items() if name != missing}
        refuse(network, replace(sent, headers=left))


def test_webhook_of_another_sender_is_refused(network: StandIn) -> None:
    sent = webhook(network)
    others = dict.fromkeys(network.settings, "0" * 64)
    with pytest.raises(SignatureInvalid):
        verify(network_of(network).signature, sent, others)
    with pytest.raises(SignatureInvalid):
        verify(network_of(network).signature, sent, {})


def test_a_signature_that_is_altered_or_doubled_is_refused(network: StandIn) -> None:
    sent = webhook(network)
    name, algorithm = header_of(network), network_of(network).signature.algorithm
    signature = sent.headers[name]
    altered = [
        signature[:at] + ("0" if signature[at] != "0" else "1") + signature[at + 1 :] for at in (0, 9, -1)
    ]
    for forged in (
        *altered,
        f"{signature}, {signature}",
        signature + " ",
        signature[:-1],
        signature.swapcase(),
    ):
        if isinstance(algorithm, Ed25519) and forged == signature.swapcase():
            continue  # hexadecimal in capitals says the same
        refuse(network, with_header(sent, name, forged))


@pytest.mark.parametrize("malformed", NOTHING_LIKE_IT, ids=range(len(NOTHING_LIKE_IT)))
def test_a_header_that_is_no_signature_is_refused(network: StandIn, malformed: str) -> None:
    sent = webhook(network)
    for name in proof_of(network):
        refuse(network, with_header(sent, name, malformed))


def test_altered_parts_are_refused_exactly_if_declared_signed(network: StandIn) -> None:
    signature, sent = network_of(network).signature, webhook(network)
    changed = {Subject.BODY: altered_bodies(sent), Subject.ADDRESS: altered_addresses(sent)}
    for subject, forgeries in changed.items():
        for forged in forgeries:
            if signature.covers(subject):
                refuse(network, forged)
            else:
                verify(signature, forged, network.settings)


def altered_bodies(sent: WebhookRequest) -> Iterator[WebhookRequest]:
    for at in (0, len(sent.body) // 2, len(sent.body) - 1):
        forged = bytearray(sent.body)
        forged[at] ^= 1
        yield replace(sent, body=bytes(forged))
    yield replace(sent, body=sent.body[:-1])


def altered_addresses(sent: WebhookRequest) -> Iterator[WebhookRequest]:
    for address in (f"{sent.public_url}?a=1", sent.public_url.replace("qm.", "mq.")):
        yield replace(sent, public_url=address)


def test_network_declares_exactly_the_headers_of_its_signature(network: StandIn) -> None:
    sent = webhook(network)
    assert set(sent.headers) - {"content-type"} == set(proof_of(network))


def test_each_network_module_is_registered() -> None:
    modules = [import_module(f"{networks.__name__}.{at.name}") for at in iter_modules(networks.__path__)]
    declared = {
        vars(value)["name"]
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and isinstance(vars(value).get("signature"), WebhookSignature)
    }
    assert declared == NETWORKS.keys()


def test_a_network_is_verified_with_secrets_that_it_has_among_its_settings() -> None:
    for name, network in NETWORKS.items():
        assert network.name == name
        assert network.signature.settings <= {
            setting.name for setting in network.settings if setting.is_required
        }


@pytest.mark.parametrize("drift_seconds", [10, -10])
@pytest.mark.parametrize("is_late", [True, False])
def test_a_signed_time_is_good_within_its_window_alone(
    network: StandIn, drift_seconds: int, is_late: bool
) -> None:
    timestamp, now = network_of(network).signature.timestamp, time.time()
    body = network.message(network.keep(PNG))
    window_seconds = 300 if timestamp is None else timestamp.window_seconds
    age_seconds = (window_seconds + drift_seconds) * (1 if is_late else -1)
    sent = request(body, network.sign(body, url=URL, at=now - age_seconds), received_at=now)
    if timestamp is not None and drift_seconds > 0:
        refuse(network, sent)
    else:
        verify(network_of(network).signature, sent, network.settings)


@pytest.mark.parametrize(
    "timestamp", ["1e9", "-1", "0x10", "١٢٣", "9" * 400, "17300000.5", "nan", "inf", " 1"]
)
def test_a_timestamp_that_is_no_count_of_seconds_is_refused(network: StandIn, timestamp: str) -> None:
    for name in set(proof_of(network)) - {header_of(network)}:
        refuse(network, with_header(webhook(network), name, timestamp))


def test_the_secret_that_was_replaced_lately_is_accepted_beside_the_new_one(network: StandIn) -> None:
    sent = webhook(network)
    name = network_of(network).signature.setting
    new = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
    replaced = {**network.settings, name: new, previous(name): network.settings[name]}
    verify(network_of(network).signature, sent, replaced)
    with pytest.raises(SignatureInvalid):
        verify(network_of(network).signature, sent, {**replaced, previous(name): new})


def test_the_token_of_whatsapps_handshake_is_checked() -> None:
    network = WhatsAppStandIn()
    for token, is_good in (
        (network.settings["verifyToken"], True),
        ("", False),
        ("é", False),
        ("meatyham", False),
    ):
        query = urlencode({"hub.mode": "subscribe", "hub.verify_token": token, "hub.challenge": "1158201444"})
        asked = request(b"", {}, url=f"{URL}?{query}", method="GET")
        if is_good:
            verify(NETWORKS["whatsapp"].signature, asked, network.settings)
        else:
            refuse(network, asked)
    refuse(network, request(b"", {}, method="GET"))


header_texts = st.text(st.characters(max_codepoint=255), max_size=140)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    headers=st.dictionaries(
        st.sampled_from([*{name for one in stand_ins() for name in proof_of(one)}, "content-type"]),
        header_texts,
        max_size=7,
    ),
    body=st.binary(max_size=200),
    query=header_texts,
)
@example(headers={"content-type": FORM}, body=b"&".join([b"a=b"] * 2000), query="")
@example(headers={"content-type": FORM}, body=b"\xff=%ff&%=%zz&==", query="bodySHA256=\udcff")
def test_nothing_a_stranger_sends_does_more_than_be_refused(
    headers: dict[str, str], body: bytes, query: str
) -> None:
    for network in ALL:
        for method in ("POST", "GET"):
            refuse(network, request(body, headers, url=f"{URL}?{query}", method=method, received_at=0))


ALL = stand_ins()
