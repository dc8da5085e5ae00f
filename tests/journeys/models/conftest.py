"""One installation that sells models, for the journeys of calls. All accounts must agree after each journey."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis

from tests.support.models.model_service import ModelService, model_service, use_impatient_front
from tests.support.models.upstreams import FakeUpstream
from tests.support.processes.stack import Servers, Service, Stack, wait_until


@pytest.fixture(scope="package")
def service(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelService]:
    """Set up a separate installation, and run one web process; the journeys run the workers."""
    stack = Stack(
        tmp_path_factory.mktemp("models"),
        servers,
        settings={"WEB_THREADS": "256"},
        change_command=use_impatient_front,
    )
    with FakeUpstream() as upstream, model_service(stack, upstream) as running:
        yield running


@pytest.fixture(autouse=True)
def _books_agree(service: ModelService) -> Iterator[None]:
    """Reconcile all accounts to the unit, the upstream's included, so that each journey begins clean."""
    yield
    try:
        assert service.disagreements() == []
    finally:
        service.sweep()


@pytest.fixture(scope="module")
def worker(service: ModelService) -> Iterator[None]:
    """Run a worker for a module."""
    with running_worker(service):
        yield


@contextmanager
def running_worker(service: ModelService, **settings: str) -> Iterator[Service]:
    """Run a worker that is ready when the block begins."""
    worker = service.stack.worker("models", **settings)
    with service.stack.running(worker):
        wait_until(lambda: worker.has_logged(" ready."), "the worker is ready")
        yield worker


@pytest.fixture
def valkey(service: ModelService) -> Iterator[redis.Redis]:
    """Yield a client of the stack's Valkey for model calls."""
    with redis.Redis.from_url(service.stack.models_redis_url) as client:
        yield client
