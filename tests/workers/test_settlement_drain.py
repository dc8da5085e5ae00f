"""A stopping worker settles its calls while it may, and pending settlements at its very end."""

import atexit
from collections.abc import Callable, Iterator

import pytest

from deploy.embedded.valkey import EmbeddedValkey
from shared.models.settlements import Settlements
from tests.support.data.identity import make_settings
from workers.agents import TurnConsumer
from workers.handling import WorkerContext
from workers.models import ModelCallConsumer


@pytest.fixture
def context(database_url: str, valkey_server: EmbeddedValkey) -> Iterator[WorkerContext]:
    context = WorkerContext(make_settings(database_url=database_url, redis_url=valkey_server.url))
    yield context
    context.database.dispose()


def make_calls(context: WorkerContext) -> None:
    ModelCallConsumer(context, limit=1)


def answer_turns(context: WorkerContext) -> None:
    assert TurnConsumer(context, limit=1)._execution is not None


@pytest.mark.parametrize("begin", [make_calls, answer_turns])
def test_stopping_worker_limits_then_closes_its_settlements(
    context: WorkerContext, monkeypatch: pytest.MonkeyPatch, begin: Callable[[WorkerContext], None]
) -> None:
    at_the_end: list[Callable[[], None]] = []
    wound_up: list[Settlements] = []

    def shut_down(settlements: Settlements) -> None:
        wound_up.append(settlements)

    monkeypatch.setattr(atexit, "register", at_the_end.append)
    monkeypatch.setattr(Settlements, "shut_down", shut_down)
    begin(context)
    assert wound_up == []
    context.stop()
    (settlements,) = wound_up
    assert settlements.close in at_the_end
