"""Real certificates, and a relay that terminates TLS before a server, for clients that verify the server."""

import contextlib
import datetime as dt
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

POSTGRES_ASKS_FOR_TLS = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"
A_DAY = dt.timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Certificates:
    """The files of a certificate authority, and of a server certificate for one name."""

    authority: Path
    server: Path
    key: Path


def make_certificates(directory: Path, *, name: str = "localhost") -> Certificates:
    """Create a certificate authority and a server's certificate."""
    directory.mkdir(parents=True, exist_ok=True)
    made = Certificates(
        authority=directory / "ca.pem", server=directory / "server.pem", key=directory / "server.key"
    )
    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Authority")])
    authority = _certificate(subject, subject, authority_key.public_key())
    authority = authority.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    server = _certificate(own, subject, server_key.public_key())
    server = server.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    for path, unsigned in ((made.authority, authority), (made.server, server)):
        signed = unsigned.sign(authority_key, hashes.SHA256())
        path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    made.key.write_bytes(
        server_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return made


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return (
        builder.serial_number(x509.random_serial_number())
        .not_valid_before(now - A_DAY)
        .not_valid_after(now + A_DAY)
    )


class _Relay(socketserver.BaseRequestHandler):
    context: ClassVar[ssl.SSLContext]
    target: ClassVar[tuple[str, int] | str]

    def handle(self) -> None:
        """Decrypt the client's TLS, and forward the content until either side closes."""
        with contextlib.suppress(OSError):
            if self.request.recv(8, socket.MSG_PEEK) == POSTGRES_ASKS_FOR_TLS:
                self.request.recv(8)
                self.request.sendall(b"S")
            with (
                self.context.wrap_socket(self.request, server_side=True) as client,
                self._connect() as server,
            ):
                back = threading.Thread(target=_pass_on, args=(server, client), daemon=True)
                back.start()
                _pass_on(client, server)
                back.join(60)

    def _connect(self) -> socket.socket:
        if isinstance(self.target, tuple):
            return socket.create_connection(self.target)
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.target)
        return connection


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(1 << 16):
            sink.sendall(piece)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False


@contextlib.contextmanager
def ending_tls(certificates: Certificates, target: tuple[str, int] | str) -> Iterator[int]:
    """Listen with TLS on a local port before the target: a unix socket's path or an address. Yield the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.key)
    handler = type("Relay", (_Relay,), {"context": context, "target": target})
    with _Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield int(server.server_address[1])
        server.shutdown()
