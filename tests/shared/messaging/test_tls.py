"""Connections to Postgres, Valkey and RabbitMQ over TLS: the settings of `deploy/README.md`, with real certificates."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
from kombu.exceptions import OperationalError
from sqlalchemy import text
from sqlalchemy.engine import make_url

from deploy.embedded.valkey import EmbeddedValkey
from shared.db.database import Database
from shared.errors import ServiceUnavailable
from shared.messaging.broker import Broker
from shared.messaging.publisher import create_celery, send_kind
from shared.messaging.queues import UPLOADS
from shared.messaging.valkey import connect_valkey
from tests.support.servers.rabbitmq import RabbitMQ
from tests.support.servers.tls import Certificates, ending_tls, make_certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the certificate of another authority."""
    return make_certificates(tmp_path_factory.mktemp("stranger")).authority


@pytest.fixture
def secure_valkey(valkey_server: EmbeddedValkey, certificates: Certificates) -> Iterator[str]:
    plain = urlsplit(valkey_server.url)
    with ending_tls(certificates, (plain.hostname or "", plain.port or 0)) as port:
        yield f"rediss://:{plain.password}@HOST:{port}/9"


@contextmanager
def secure_rabbitmq(rabbitmq: RabbitMQ, certificates: Certificates) -> Iterator[str]:
    plain = urlsplit(rabbitmq.new_url())
    with ending_tls(certificates, (plain.hostname or "", plain.port or 0)) as port:
        yield f"amqps://{plain.username}:{plain.password}@HOST:{port}{plain.path}"


def test_postgres_is_verified_by_its_authority_and_name(
    database_url: str, certificates: Certificates, stranger: Path
) -> None:
    plain = make_url(database_url.replace("postgresql:", "postgresql+psycopg2:", 1))
    directory = plain.query.get("host")
    target = (
        f"{directory}/.s.PGSQL.{plain.port or 5432}" if directory else (plain.host or "", plain.port or 5432)
    )
    with ending_tls(certificates, target) as port:

        def ask(host: str, authority: Path) -> object:
            query = {"sslmode": "verify-full", "sslrootcert": str(authority)}
            url = plain.set(host=host, port=port, query=query).render_as_string(hide_password=False)
            with closing_database(url) as database, database.transaction() as session:
                return session.execute(text("SELECT 1")).scalar_one()

        assert ask("localhost", certificates.authority) == 1
        for host, authority in (("localhost", stranger), ("127.0.0.1", certificates.authority)):
            with pytest.raises(ServiceUnavailable):
                ask(host, authority)


@contextmanager
def closing_database(url: str) -> Iterator[Database]:
    database = Database(url)
    yield database
    database.dispose()


def test_valkey_is_verified_by_its_authority_and_name(
    secure_valkey: str, certificates: Certificates, stranger: Path
) -> None:
    def ask(host: str, query: str) -> object:
        with closing(connect_valkey(secure_valkey.replace("HOST", host) + query)) as valkey:
            return valkey.ping()

    assert ask("localhost", f"?ssl_ca_certs={certificates.authority}")
    _assert_others_are_refused(ask, certificates, stranger, (redis.ConnectionError,))


def test_valkey_as_the_broker_is_verified_by_its_authority_and_name(
    secure_valkey: str, certificates: Certificates, stranger: Path
) -> None:
    _assert_broker_is_verified(secure_valkey, certificates, stranger)


def test_rabbitmq_is_verified_by_its_authority_and_name(
    rabbitmq: RabbitMQ, certificates: Certificates, stranger: Path
) -> None:
    with secure_rabbitmq(rabbitmq, certificates) as url:
        _assert_broker_is_verified(url, certificates, stranger)


def _assert_broker_is_verified(url: str, certificates: Certificates, stranger: Path) -> None:
    def connect(host: str, query: str) -> None:
        with (
            closing(create_celery(url.replace("HOST", host) + query)) as app,
            app.connection_for_write() as connection,
        ):
            connection.channel()

    def count(host: str, query: str) -> int:
        with closing(Broker.of(url.replace("HOST", host) + query)) as broker:
            return broker.depth(UPLOADS)

    known = f"?ssl_ca_certs={certificates.authority}"
    with closing(create_celery(url.replace("HOST", "localhost") + known)) as app:
        send_kind(app, "x", queue=UPLOADS)
    assert count("localhost", known) == 1
    _assert_others_are_refused(
        connect, certificates, stranger, (OSError, OperationalError, redis.ConnectionError)
    )
    _assert_others_are_refused(count, certificates, stranger, (ServiceUnavailable,))


def _assert_others_are_refused(
    ask: Callable[[str, str], object],
    certificates: Certificates,
    stranger: Path,
    refusals: tuple[type[Exception], ...],
) -> None:
    """A server of another authority, of another name, or of one that this host does not know."""
    for host, query in (
        ("localhost", f"?ssl_ca_certs={stranger}"),
        ("127.0.0.1", f"?ssl_ca_certs={certificates.authority}"),
        ("localhost", ""),
    ):
        with pytest.raises(refusals):
            ask(host, query)
