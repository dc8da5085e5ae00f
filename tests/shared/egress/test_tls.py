"""TLS is checked against the host's name, although we choose the socket."""

import ssl
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shared.egress.errors import ConnectionFailed, FetchTimedOut, SchemeRefused
from shared.egress.policy import EgressPolicy
from shared.egress.post import post
from tests.shared.egress.asking import HASTY, fetched
from tests.shared.egress.servers import Server, content, redirect, serve

HOSTS = ("media.example", "cdn.example")


@dataclass(frozen=True)
class Authority:
    """A certificate authority of our own."""

    file: Path
    context: ssl.SSLContext
    """For a server of `HOSTS`."""


def name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def certificate(
    subject: str, key: ec.EllipticCurvePrivateKey, issuer: str, issuer_key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    now = datetime.now(UTC)
    is_authority = subject == issuer
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if not is_authority:
        names = x509.SubjectAlternativeName([x509.DNSName(host) for host in HOSTS])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    directory = tmp_path_factory.mktemp("authority")
    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root = certificate("Test authority", root_key, "Test authority", root_key)
    leaf = certificate(HOSTS[0], key, "Test authority", root_key)
    file, chain = directory / "authority.pem", directory / "server.pem"
    file.write_bytes(root.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain.write_bytes(private + leaf.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    return Authority(file=file, context=context)


@pytest.fixture
def secure(authority: Authority) -> Iterator[Server]:
    with serve(authority.context) as server:
        yield server


@pytest.fixture
def policy(authority: Authority) -> EgressPolicy:
    return EgressPolicy(allow_private=True, ca_bundle=str(authority.file), resolve=lambda *_: ["127.0.0.1"])


def test_a_certificate_for_the_name_is_accepted(secure: Server, policy: EgressPolicy) -> None:
    secure.on("/", content(b"secure"))
    assert fetched(secure.url(host="media.example", scheme="https"), policy=policy) == b"secure"
    assert secure.headers_at("/")["host"] == f"media.example:{secure.port}"


def test_a_certificate_for_another_name_is_not(secure: Server, policy: EgressPolicy) -> None:
    with pytest.raises(ConnectionFailed) as caught:
        fetched(secure.url(host="other.example", scheme="https"), policy=policy)
    assert "certificate" in caught.value.detail
    assert secure.asked == []


def test_a_refused_certificate_is_told_without_the_path(secure: Server, policy: EgressPolicy) -> None:
    token = uuid4().hex
    with pytest.raises(ConnectionFailed) as caught:
        fetched(secure.url(f"/bot1:{token}/x", host="other.example", scheme="https"), policy=policy)
    assert token not in "".join(traceback.format_exception(caught.value))


def test_a_certificate_of_an_unknown_authority_is_not(secure: Server) -> None:
    policy = EgressPolicy(allow_private=True, resolve=lambda *_: ["127.0.0.1"])
    with pytest.raises(ConnectionFailed):
        post(
            secure.url(host="media.example", scheme="https"),
            body=b"{}",
            headers={},
            policy=policy,
            deadline_seconds=5,
        )
    assert secure.asked == []


def test_the_environment_names_no_other_authorities(
    secure: Server, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.setenv(variable, str(authority.file))
    policy = EgressPolicy(allow_private=True, resolve=lambda *_: ["127.0.0.1"])
    with pytest.raises(ConnectionFailed):
        fetched(secure.url(host="media.example", scheme="https"), policy=policy)


def test_credentials_follow_to_a_trusted_host_and_never_to_plain_http(
    secure: Server, policy: EgressPolicy
) -> None:
    secure.on("/0", redirect(secure.url("/1", host="cdn.example", scheme="https")))
    secure.on("/1", content(b"secure"))
    options: dict[str, Any] = {"headers": {"Authorization": "Bearer b"}, "trusted_hosts": {"cdn.example"}}
    url = secure.url("/0", host="media.example", scheme="https")
    assert fetched(url, policy=policy, **options) == b"secure"
    assert secure.headers_at("/1")["authorization"] == "Bearer b"
    secure.on("/0", redirect("http://cdn.example/1"))
    with pytest.raises(SchemeRefused):
        fetched(url, policy=policy, **options)


def test_credentials_do_not_change_to_plain_http_where_that_is_allowed(
    secure: Server, policy: EgressPolicy, server: Server
) -> None:
    secure.on("/0", redirect(server.url("/1", host="cdn.example")))
    server.on("/1", content(b"plain"))
    options: dict[str, Any] = {"headers": {"Authorization": "Bearer b"}, "trusted_hosts": {"cdn.example"}}
    url = secure.url("/0", host="media.example", scheme="https")
    assert fetched(url, policy=replace(policy, allow_http=True), **options) == b"plain"
    assert "authorization" not in server.headers_at("/1")


def test_a_handshake_that_does_not_end_meets_the_deadline(policy: EgressPolicy) -> None:
    with serve() as server, pytest.raises(FetchTimedOut):
        fetched(server.url(host="media.example", scheme="https"), policy=policy, limits=HASTY)
