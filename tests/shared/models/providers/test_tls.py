"""Providers over TLS: configured authorities, and the same speed of hanging up."""

import ipaddress
import itertools
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shared.models.providers.base import Event
from shared.models.providers.errors import CallCancelled, ProviderError, ProviderTimeout
from shared.models.providers.routing import Router
from tests.shared.models.providers.calls import NEVER, body, events_of, model, read, text_of, usage_of
from tests.shared.models.providers.conftest import set_by
from tests.support.models.upstream_scripts import Script
from tests.support.models.upstreams import FakeUpstream


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate that vouches for itself, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "upstream of a test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "upstream.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def secure_upstream(certificate: Path) -> Iterator[FakeUpstream]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with FakeUpstream(tls=context) as running:
        yield running


def test_a_certificate_of_the_configured_authority_is_trusted(
    router: Router, secure_upstream: FakeUpstream, certificate: Path
) -> None:
    entry = model(secure_upstream.base_url, provider_keys=f'ca_file = "{certificate}"')
    for _ in range(2):
        assert text_of(events_of(router, entry)) == "token token token "
    assert secure_upstream.connections == 1


def test_a_stranger_is_not_trusted_and_gets_nothing(router: Router, secure_upstream: FakeUpstream) -> None:
    with pytest.raises(ProviderError, match="cannot be reached") as raised:
        events_of(router, model(secure_upstream.base_url, retries=0))
    assert not raised.value.may_have_cost
    assert not secure_upstream.received


def test_a_file_of_authorities_that_is_missing_costs_nothing(
    router: Router, secure_upstream: FakeUpstream
) -> None:
    with pytest.raises(ProviderError) as raised:
        events_of(router, model(secure_upstream.base_url, retries=0, provider_keys='ca_file = "/absent"'))
    assert not raised.value.may_have_cost


def test_bytes_received_before_a_cut_are_read(
    router: Router, secure_upstream: FakeUpstream, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part came in a record of its own."""
    cut, cancelled = set_by("_end", monkeypatch), threading.Event()
    secure_upstream.script = Script(delay_seconds=0.02)
    entry = model(secure_upstream.base_url, provider_keys=f'ca_file = "{certificate}"')
    with router.open(entry, lambda _: body(), cancelled=cancelled) as stream:
        batches = stream.batches()
        events = list(next(batches))
        assert secure_upstream.wait_for_end_of(1)[0].ended == "answered"
        cancelled.set()
        assert cut.wait(10)
        events += itertools.chain.from_iterable(batches)
    assert text_of(events) == "token token token "
    assert usage_of(events)


def test_events_that_arrive_together_form_one_batch(
    router: Router, secure_upstream: FakeUpstream, certificate: Path
) -> None:
    secure_upstream.script = Script(chunks=400)
    entry = model(secure_upstream.base_url, provider_keys=f'ca_file = "{certificate}"')
    with router.open(entry, lambda _: body(), cancelled=NEVER) as stream:
        batches = list(stream.batches())
    assert sum(map(len, batches)) == 403
    assert len(batches) < 200


def test_a_silent_stream_is_cut(router: Router, secure_upstream: FakeUpstream, certificate: Path) -> None:
    secure_upstream.script = Script(stall_after=2)
    entry = model(
        secure_upstream.base_url, idle_timeout_seconds=0.3, provider_keys=f'ca_file = "{certificate}"'
    )
    events: list[Event] = []
    with (
        router.open(entry, lambda _: body(), cancelled=NEVER) as stream,
        pytest.raises(ProviderTimeout) as raised,
    ):
        read(stream, events)
    assert text_of(events) == "token token "
    assert raised.value.may_have_cost


def test_cancelling_before_the_first_byte_hangs_up(
    router: Router, secure_upstream: FakeUpstream, certificate: Path
) -> None:
    secure_upstream.script = Script(wait_seconds=30)
    cancelled = threading.Event()
    timer = threading.Timer(0.3, cancelled.set)
    timer.start()
    entry = model(secure_upstream.base_url, provider_keys=f'ca_file = "{certificate}"')
    with pytest.raises(CallCancelled):
        events_of(router, entry, cancelled=cancelled)
    assert secure_upstream.wait_for_end_of(1)[0].ended == "client left"
    timer.join()
