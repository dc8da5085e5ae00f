"""One installation for all flows of this process, whose commits are recorded."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from uuid import UUID

import pytest
from flask.testing import FlaskClient

from deploy.embedded.valkey import EmbeddedValkey
from shared.a2a.agent_turns import task_log
from shared.a2a.behavior_registry import build_behaviors
from shared.a2a.tasks.task_notifier import TaskNotifier
from shared.credits.holds import Stage, read_leases
from shared.db.database import Database
from shared.messaging.replies import ReplyChannel, ReplyKind
from shared.messaging.valkey import connect_valkey
from shared.models.heartbeats import LeasedCall
from shared.models.providers.routing import Router
from shared.runtime import retry
from tests.proof.commits import watching_connections
from tests.proof.later import database_later
from tests.proof.world import World, make_world
from tests.shared.models.model_calls import model_calls
from tests.support.agents.chosen_turns import make_execution
from tests.support.data.media_sources import MediaSource
from tests.support.networks.slack import SlackStandIn
from tests.support.processes.bound_worker import bound_worker
from tests.support.web.web_process import LOCAL_EGRESS, Front, open_front
from tests.web.credits.test_payments import SOURCES


@pytest.fixture(scope="module")
def world(
    database_url: str,
    administrator_url: str,
    valkey_server: EmbeddedValkey,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    """Yield an installation over this module's database."""
    blobs, models = tmp_path_factory.mktemp("blobs"), tmp_path_factory.mktemp("models")
    patch = pytest.MonkeyPatch()
    patch.setattr(retry, "FIRST_PAUSE_SECONDS", 0.001)
    patch.setattr(task_log, "BATCH_SECONDS", 0.0)
    with ExitStack() as stack:
        stack.callback(patch.undo)
        stack.enter_context(watching_connections())
        local = {**LOCAL_EGRESS, "payment_sources": SOURCES}
        front = stack.enter_context(open_front(database_url, valkey_server.url, blobs, **local))
        front.app.test_client_class = (
            FlaskClient  # Without validation against the OpenAPI document: other tests cover it.
        )
        worker = stack.enter_context(bound_worker(front.settings))
        replies = ReplyChannel(connect_valkey(valkey_server.url))
        stack.callback(replies.close)
        calls = stack.enter_context(model_calls(front.services.database, valkey_server.url, replies, models))
        later = stack.enter_context(database_later(front.settings.database_url, administrator_url))
        told = _told_too_soon(patch, front.services.database)
        made = make_world(
            *(front, worker, calls),
            later=later,
            asked=_asked(patch),
            told_too_soon=told,
            source=stack.enter_context(MediaSource()),
            slack=stack.enter_context(SlackStandIn()),
            **stack.enter_context(_worker_of_agents(front)),
        )
        stack.callback(made.link.close)
        # The first use of a store commits a row. It happens here, so that no flow has that commit.
        front.services.blobs.require()
        yield made


@contextmanager
def _worker_of_agents(front: Front) -> Iterator[dict[str, Any]]:
    """Yield what a worker of agents consists of. It writes each update at once."""
    services, valkey = front.services, connect_valkey(front.settings.redis_url)
    notifier = TaskNotifier(valkey)
    behaviors = build_behaviors(services.database, services.blobs, valkey, front.settings)
    _, leases, watch, turns = make_execution(services.database, notifier, behaviors, front.settings)
    yield {"notifier": notifier, "leases": leases, "turns": turns}
    watch.shut_down()
    services.agents.watch.close()
    behaviors.calls.engine.router.close()
    behaviors.calls.admission.slots.close()
    valkey.close()


def _asked(patch: pytest.MonkeyPatch) -> list[str]:
    """Record the id of every call that is sent to a provider."""
    asked: list[str] = []
    really = Router.open

    @wraps(really)
    def noting(*arguments: Any, call_id: str, **options: Any) -> Any:
        asked.append(call_id)
        return really(*arguments, call_id=call_id, **options)

    patch.setattr(Router, "open", noting)
    return asked


def _told_too_soon(patch: pytest.MonkeyPatch, database: Database) -> list[UUID]:
    """Record every call whose end is reported before the call is settled."""
    told: list[UUID] = []
    really = LeasedCall.send

    @wraps(really)
    def looking(leased: LeasedCall, kind: ReplyKind, data: bytes = b"") -> bool:
        if kind in (ReplyKind.END, ReplyKind.FAILED):
            called = leased.dispatch.invocation_id
            with database.autocommit() as session:
                is_open = read_leases(session, [called])[called].stage is not Stage.ENDED
            told.extend([called] if is_open else [])
        return really(leased, kind, data)

    patch.setattr(LeasedCall, "send", looking)
    return told
