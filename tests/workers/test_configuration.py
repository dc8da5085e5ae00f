"""The configuration of workers and beat: every job has a handler and a sweep, and Celery's settings are complete."""

import ast
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from celery import Celery
from cryptography.fernet import Fernet
from kombu.exceptions import OperationalError

from deploy.process_types import WORKERS, worker_command
from shared.config.settings import Settings
from shared.messaging.jobs import HANDLERS, sweep
from shared.messaging.publisher import create_celery
from shared.messaging.queues import QUEUES, RETENTION, WORKER_QUEUES
from shared.runtime.clock_skew import CLOCKS_APART_SECONDS
from tests.support.processes.collected_cases import found
from workers.handling import WorkerContext
from workers.registry import MODULES, bind_queues, handlers_of
from workers.schedule import build_schedule

ROOT = Path(__file__).parents[2]
DECLARED = handlers_of(QUEUES)


@pytest.fixture(scope="module")
def context() -> WorkerContext:
    settings = Settings(
        database_url="postgresql://nowhere/nothing",
        redis_url="redis://127.0.0.1:1/0",
        blob_store="file:///nowhere",
        encryption_keys=Fernet.generate_key().decode(),
    )
    return WorkerContext(settings)


@pytest.fixture(scope="module")
def app(context: WorkerContext) -> Iterator[Celery]:
    with closing(create_celery("redis://127.0.0.1:1/0")) as app:
        bind_queues(app, context, QUEUES)
        yield app


def test_every_module_that_declares_a_handler_is_listed_for_its_queue() -> None:
    declaring = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "shared").rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef)
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Name)
        and decorator.func.id in ("sweep", "handles")
    }
    assert declaring == {module for modules in MODULES.values() for module in modules}
    assert declaring == {handler.run.__module__ for handler in DECLARED}
    for handler in DECLARED:
        assert handler.run.__module__ in MODULES[handler.queue], handler.kind


def test_every_handler_is_bound_and_has_a_worker(app: Celery) -> None:
    assert sorted(HANDLERS) == sorted(handler.kind for handler in DECLARED)
    for handler in DECLARED:
        assert handler.kind in app.tasks
        assert handler.queue in QUEUES


@pytest.mark.parametrize("name", sorted(WORKERS))
def test_a_worker_has_the_handlers_of_its_queues(context: WorkerContext, name: str) -> None:
    queues = WORKER_QUEUES[name]
    with closing(create_celery("redis://127.0.0.1:1/0")) as app:
        bind_queues(app, context, queues)
        assert [at.kind for at in DECLARED if at.queue in queues and at.kind not in app.tasks] == []


def test_beat_sends_every_handler_that_has_an_interval_to_its_queue() -> None:
    sent = {kind: (entry["task"], entry["options"]["queue"]) for kind, entry in build_schedule().items()}
    assert sent == {at.kind: (at.kind, at.queue) for at in DECLARED if at.every_seconds is not None}
    assert len(sent) > 20


def test_every_sweep_ends_within_a_budget_that_its_kind_of_work_bears() -> None:
    for handler in DECLARED:
        assert handler.budget_seconds <= (600 if handler.queue == "media" else 5), handler.kind


def test_a_kind_is_declared_once() -> None:
    kind = DECLARED[0].kind
    with pytest.raises(ValueError, match=kind):
        sweep(kind, queue=RETENTION, every_seconds=1)(lambda _: 0)


def test_every_sweep_that_no_worker_took_in_its_interval_by_any_clock_is_dropped() -> None:
    for entry in found(build_schedule().values()):
        assert entry["options"]["expires"] == entry["schedule"] + CLOCKS_APART_SECONDS


def test_every_queue_is_served(app: Celery) -> None:
    assert set(WORKERS) == set(WORKER_QUEUES)
    assert set(QUEUES) == {queue.name for queue in app.conf.task_queues}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("task_acks_late", True),
        ("worker_prefetch_multiplier", 1),
        ("result_backend", None),
        ("task_ignore_result", True),
        ("task_serializer", "json"),
        ("accept_content", ["json"]),
        ("task_create_missing_queues", False),
        ("broker_connection_retry_on_startup", True),
        ("broker_connection_max_retries", None),
        ("task_send_sent_event", False),
        ("worker_send_task_events", False),
        ("worker_soft_shutdown_timeout", 20),
        ("worker_enable_soft_shutdown_on_idle", True),
        ("worker_eta_task_limit", 1000),
    ],
)
def test_celery_knows_the_setting(app: Celery, name: str, value: object) -> None:
    assert app.conf[name] == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("socket_timeout", 5),
        ("socket_connect_timeout", 1),
        ("socket_keepalive", True),
        ("health_check_interval", 10),
        ("visibility_timeout", 3600),
        ("unacked_restore_interval", 5),
        ("unacked_restore_throttle", 1),
        ("priority_steps", [0]),
    ],
)
def test_no_wait_for_the_broker_is_without_bound(app: Celery, name: str, value: object) -> None:
    assert app.conf.broker_transport_options[name] == value


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_a_broker_that_was_away_for_long_is_missed_no_longer(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kombu.utils.functional.sleep", lambda _: None)
    pauses: list[float] = []
    with (
        socket.socket() as closed,
        closing(create_celery(f"{scheme}://127.0.0.1:{bound(closed)}/0")) as app,
    ):
        for connection in (app.connection_for_read(), app.connection_for_write()):
            with connection, pytest.raises(OperationalError):
                connection.ensure_connection(lambda _, pause: pauses.append(pause), 8)
    assert len(pauses) == 16
    assert max(pauses) <= 2


def bound(closed: socket.socket) -> int:
    """Reserve a port without a listener."""
    closed.bind(("127.0.0.1", 0))
    port: int = closed.getsockname()[1]
    return port


@pytest.mark.parametrize("name", sorted(WORKERS))
def test_workers_run_threads_without_gossip(name: str) -> None:
    command = worker_command(name, {})
    assert command[command.index("--pool") + 1] == "threads"
    assert {"--without-gossip", "--without-mingle", "--without-heartbeat"} <= set(command)
