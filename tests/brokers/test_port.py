"""All brokers behind one port: the URL selects the kind, and each kind counts, bounds and refuses messages alike."""

import inspect
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import amqp
import pytest
from celery import Celery
from kombu.exceptions import OperationalError
from kombu.transport import pyamqp

import shared.messaging.broker
from deploy.embedded.valkey import EmbeddedValkey
from deploy.supervision.child_processes import Program, kill, spawn
from shared.config.settings import load_settings
from shared.config.settings_errors import SettingsInvalid
from shared.errors import ServiceUnavailable
from shared.files.lifecycle.placement import PlaceAwaited
from shared.messaging.broker import Broker, RabbitBroker, SentinelBroker, ValkeyBroker
from shared.messaging.publisher import Publisher, create_celery, send_kind
from shared.messaging.queues import MODELS, UPLOADS
from shared.observability.telemetry import PUBLISH_FAILURES
from tests.support.data.identity import make_settings
from tests.support.processes.stack import free_port, wait_until
from tests.support.servers.rabbitmq import RabbitMQ

PATIENCE_SECONDS = 90.0


@pytest.fixture(scope="module")
def sentinel_url(valkey_server: EmbeddedValkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a Sentinel that watches the session's Valkey; yield its URL."""
    directory, port = tmp_path_factory.mktemp("sentinel"), free_port()
    password, _, rest = valkey_server.url.removeprefix("redis://:").partition("@")
    primary = rest.partition(":")[2].partition("/")[0]
    configuration = directory / "sentinel.conf"
    configuration.write_text(
        f"port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {primary} 1\n"
        f"sentinel auth-pass main {password}\n"
    )
    binary = valkey_server.program().command[0]
    program = Program(
        name="sentinel", command=(binary, str(configuration), "--sentinel"), log=directory / "sentinel.log"
    )
    process = spawn(program)
    yield f"sentinel://:{password}@127.0.0.1:{port}/9?master_name=main"
    kill(process)


@pytest.fixture(params=["valkey", "sentinel", "rabbitmq"])
def broker(request: pytest.FixtureRequest, valkey_server: EmbeddedValkey) -> Iterator[Broker]:
    """Yield a broker of each kind, without messages."""
    if request.param == "rabbitmq":
        url = request.getfixturevalue("rabbitmq").new_url()
    elif request.param == "sentinel":
        url = request.getfixturevalue("sentinel_url")
    else:
        url = valkey_server.url.rpartition("/")[0] + "/8"
    with closing(Broker.of(url)) as broker:
        if isinstance(broker, ValkeyBroker):
            wait_until(lambda: _is_answering(broker), "the broker answers")
            broker._valkey.flushdb()
        yield broker


@pytest.fixture
def app(broker: Broker) -> Iterator[Celery]:
    with closing(create_celery(broker.url)) as app:
        yield app


def _is_answering(broker: Broker) -> bool:
    try:
        return broker.depth(UPLOADS) >= 0
    except ServiceUnavailable:
        return False


def test_depth_counts_pending_messages(broker: Broker, app: Celery) -> None:
    assert broker.depth(UPLOADS) == 0
    for _ in range(3):
        send_kind(app, "x", queue=UPLOADS)
    assert broker.depth(UPLOADS) == 3
    assert broker.depth(MODELS[0]) == 0


def test_unread_hints_are_bounded(broker: Broker, app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared.messaging.broker, "JOB_MESSAGES_LIMIT", 3)
    monkeypatch.setattr(PlaceAwaited, "spacing_seconds", 0.0)
    app.conf.update(Broker.of(broker.url).settings)
    publisher = Publisher(app)
    for _ in range(8):
        publisher.publish([PlaceAwaited()])
        wait_until(lambda: not publisher._pending, "it is sent or dropped")
        time.sleep(0.05)
    wait_until(lambda: broker.depth(UPLOADS) == 3, "as many wait as may")


def test_worker_receives_sent_messages_over_each_broker(broker: Broker, app: Celery) -> None:
    send_kind(app, "x", queue=UPLOADS, fields={"id": "1"})
    described: Any = broker.queue(UPLOADS)
    with app.connection_for_read() as connection, connection.SimpleQueue(described) as queue:
        message = queue.get(timeout=PATIENCE_SECONDS)
        assert message.headers["task"] == "x"
        message.ack()
        assert broker.depth(UPLOADS) == 0


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("redis://host/0", ValkeyBroker),
        ("rediss://host/0?ssl_cert_reqs=required", ValkeyBroker),
        ("sentinel://one:26379;sentinel://two:26379/3?master_name=main", SentinelBroker),
        ("amqp://host/vhost", RabbitBroker),
        ("amqps://host/vhost", RabbitBroker),
    ],
)
def test_url_scheme_selects_the_broker(url: str, kind: type[Broker]) -> None:
    assert type(Broker.of(url)) is kind
    with closing(create_celery(url)) as app, app.connection_for_write() as connection:
        module = type(connection.transport).__module__
        assert module == (
            "shared.messaging.amqp_transport" if kind is RabbitBroker else "shared.messaging.redis_transport"
        )


def test_sentinels_share_credentials_and_database() -> None:
    broker = Broker.of(
        "sentinel://:secret@one:26379;sentinel://two:26380/3?master_name=main&sentinel_password=p"
    )
    assert broker.celery_url == "sentinel://:secret@one:26379/3;sentinel://:secret@two:26380/3"
    assert broker.options["master_name"] == "main"
    assert broker.options["sentinel_kwargs"]["password"] == "p"


@pytest.mark.parametrize(
    ("name", "value", "known"),
    [
        ("BROKER_URL", "sqs://key@", "redis://, rediss://, sentinel://, amqp://, amqps://"),
        ("BROKER_URL", "host:5672", "redis://, rediss://, sentinel://, amqp://, amqps://"),
        ("REDIS_URL", "amqp://host/vhost", "redis://, rediss://"),
        ("MODELS_REDIS_URL", "amqp://host/vhost", "redis://, rediss://"),
    ],
)
def test_url_of_an_unknown_broker_is_refused_at_startup(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, known: str
) -> None:
    required = {
        "DATABASE_URL": "postgresql://nowhere/nothing",
        "REDIS_URL": "redis://nowhere/0",
        "BLOB_STORE": "file:///nowhere",
        "ENCRYPTION_KEYS": "key",
    }
    for variable, usable in (required | {name: value}).items():
        monkeypatch.setenv(variable, usable)
    with pytest.raises(SettingsInvalid) as refused:
        load_settings()
    assert f"{name} is not usable: must begin with one of {known}." in str(refused.value)


def test_jobs_use_the_broker_and_everything_else_uses_valkey() -> None:
    assert make_settings().broker == make_settings().redis_url
    assert make_settings(broker_url="amqp://host/vhost").broker == "amqp://host/vhost"


def test_broker_in_alarm_blocks_no_publisher(rabbitmq: RabbitMQ) -> None:
    url = rabbitmq.new_url()
    with closing(create_celery(url)) as app, closing(Broker.of(url)) as broker:
        send_kind(app, "x", queue=UPLOADS)
        before = _failures()
        publisher = Publisher(app)
        with rabbitmq.in_alarm():
            sent = threading.Thread(target=publisher._send, args=(PlaceAwaited(),), daemon=True)
            began = time.monotonic()
            sent.start()
            sent.join(PATIENCE_SECONDS)
            assert not sent.is_alive()
            assert _failures() == before + 1
            assert broker.depth(UPLOADS) >= 1, "who only asks is answered"
            assert publisher._cooldown_until > began, "it rests"
        publisher._cooldown_until = 0.0
        waiting = broker.depth(UPLOADS)
        publisher._send(PlaceAwaited())
        assert broker.depth(UPLOADS) > waiting


def test_unresponsive_broker_blocks_no_publisher(rabbitmq: RabbitMQ) -> None:
    with closing(create_celery(rabbitmq.new_url())) as app:
        send_kind(app, "x", queue=UPLOADS)
        publisher, before = Publisher(app), _failures()
        with rabbitmq.mute():
            sent = threading.Thread(target=publisher._send, args=(PlaceAwaited(),), daemon=True)
            sent.start()
            sent.join(PATIENCE_SECONDS)
            assert not sent.is_alive()
        assert _failures() == before + 1


def test_killed_broker_restores_confirmed_messages(rabbitmq: RabbitMQ) -> None:
    url = rabbitmq.new_installation_url()
    with closing(create_celery(url)) as app, closing(Broker.of(url)) as broker:
        for _ in range(20):
            send_kind(app, "x", queue=UPLOADS)
        rabbitmq.kill()
        with pytest.raises(ServiceUnavailable):
            broker.depth(UPLOADS)
        rabbitmq.start_again()
        # A restarted node counts again with the next message.
        wait_until(lambda: _has_taken(app), "the queue has its leader again")
        wait_until(lambda: broker.depth(UPLOADS) >= 21, "all are there")


def _has_taken(app: Celery) -> bool:
    try:
        send_kind(app, "x", queue=UPLOADS)
    except OperationalError:
        return False
    return True


def test_call_beyond_the_limit_is_refused_and_displaces_none(
    rabbitmq: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared.messaging.broker, "CALLS_LIMIT", 2)
    url = rabbitmq.new_url()
    with closing(create_celery(url)) as app, closing(Broker.of(url)) as broker:
        refused = 0
        for _ in range(10):
            try:
                send_kind(app, "x", queue=MODELS[0])
            except OperationalError:
                refused += 1
        assert refused >= 1
        assert broker.depth(MODELS[0]) + refused == 10


def _failures() -> float:
    value: float = PUBLISH_FAILURES._value.get()
    return value


def test_amqp_client_still_has_the_code_that_corrections_rely_on() -> None:
    """If this fails after an upgrade: compare `shared/messaging/amqp_transport.py` with the new code."""
    connection: Any = amqp.Connection
    assert issubclass(pyamqp.Connection, connection)
    assert "self.connection.confirm_publish" in _source(amqp.Channel.__init__)
    assert "self.basic_publish = self.basic_publish_confirm" in _source(amqp.Channel.__init__)
    assert "kwargs.pop('confirm_timeout', None)" in _source(amqp.Channel.basic_publish_confirm)
    assert "spec.Connection.Blocked: self._on_blocked" in _source(connection._setup_listeners)


def _source(function: Any) -> str:
    return inspect.getsource(function)
