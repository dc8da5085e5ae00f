"""Calls of agents and calls through `/v1` are settled by the same code and charged the same, however they end."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import pytest
from sqlalchemy import text

from deploy.embedded.valkey import EmbeddedValkey
from shared.a2a.agent_turns import heartbeats as turn_heartbeats
from shared.credits.balances import Balance
from shared.credits.settlement import Outcome
from shared.db.database import Database
from shared.identity.access.authorization import OPERATOR
from shared.identity.authentication import revocation_watcher
from shared.identity.authentication.revalidation import CallerRevalidator
from shared.identity.authentication.revocation_watcher import RevocationWatcher
from shared.identity.directory.organizations import suspend_organization
from shared.identity.errors import OrganizationSuspended
from shared.messaging.replies import Reply, ReplyChannel
from shared.messaging.valkey import connect_valkey
from shared.models import heartbeats
from shared.models.dialects import Translator
from shared.models.engine import Engine
from shared.models.heartbeats import LeasedCall
from shared.models.invocations import require_model_access
from shared.models.reply_timeouts import replies
from tests.shared.a2a.behaviors.agents import Agents, make_agents
from tests.shared.models.model_calls import CREDITS, ModelCalls, model_calls, received
from tests.support.processes.stack import wait_until
from web.framework.revocation import until_revoked

NOTHING = ("failed", 0, 0, False)
LONG = "!tokens 1000\n!delay 20"


class EntryPoint(Protocol):
    """One way to call a model, for an organization of its own."""

    @property
    def organization_id(self) -> UUID: ...

    @property
    def balance(self) -> Balance: ...

    def discrepancies(self) -> list[str]: ...

    def call(self, prompt: str, model: str) -> None:
        """Make a call and wait for its end."""

    def cancel_in_the_middle(self, prompt: str) -> None:
        """Make a call, and cancel it after some words."""

    def revoke_in_the_middle(self, prompt: str) -> None:
        """Make a call, and suspend its organization after some words."""


@dataclass(frozen=True)
class ClientEntryPoint:
    """`/v1`: a web process, the queue and a worker, all in this process."""

    calls: ModelCalls
    running: RevocationWatcher
    is_stream: bool
    is_opened: Callable[[], bool]

    @property
    def organization_id(self) -> UUID:
        assert self.calls.caller.payer_id is not None
        return self.calls.caller.payer_id

    @property
    def balance(self) -> Balance:
        return self.calls.balance

    def discrepancies(self) -> list[str]:
        return self.calls.discrepancies()

    def call(self, prompt: str, model: str) -> None:
        inbox = self.calls.chat(prompt, model=model, stream=self.is_stream)
        self.calls.execute(inbox)
        received(inbox)

    def cancel_in_the_middle(self, prompt: str) -> None:
        inbox = self.calls.chat(prompt, stream=self.is_stream)
        coming = replies(self.calls.invoker, inbox, lambda: 0.05)
        with self.calls.executing(inbox), closing(coming):
            assert any(map(self._is_in_the_middle, coming))

    def _is_in_the_middle(self, reply: Reply | None) -> bool:
        if not self.is_stream:
            return self.is_opened()
        return reply is not None and b"word3" in reply.data

    def revoke_in_the_middle(self, prompt: str) -> None:
        inbox = self.calls.chat(prompt, stream=self.is_stream)
        coming = replies(self.calls.invoker, inbox, lambda: 0.05)
        watch = partial(self.running.watch, self.calls.caller, require_model_access)
        watched = until_revoked(coming, watch, lambda: None)
        with self.calls.executing(inbox):
            assert any(map(self._is_in_the_middle, watched))
            suspend(self.calls.database, self.organization_id)
            with pytest.raises(OrganizationSuspended):
                list(watched)


@dataclass(frozen=True)
class AgentEntryPoint:
    """A turn of an agent, run by a worker."""

    agents: Agents

    @property
    def organization_id(self) -> UUID:
        return self.agents.organization_id

    @property
    def balance(self) -> Balance:
        return self.agents.balance

    def discrepancies(self) -> list[str]:
        return self.agents.discrepancies()

    def call(self, prompt: str, model: str) -> None:
        self.agents.use_model(model)
        self.agents.answer(prompt)

    def cancel_in_the_middle(self, prompt: str) -> None:
        self.agents.use_model("scripted/chat")
        sent = self.agents.say(prompt)
        with self.agents.answering(sent):
            wait_until(lambda: "word3" in str(self.agents.events(sent.task_id)), "some words")
            self.agents.cancel(sent.task_id)

    def revoke_in_the_middle(self, prompt: str) -> None:
        self.agents.use_model("scripted/chat")
        sent = self.agents.say(prompt)
        with self.agents.answering(sent):
            wait_until(lambda: "word3" in str(self.agents.events(sent.task_id)), "some words")
            suspend(self.agents.database, self.organization_id)


def suspend(database: Database, organization_id: UUID) -> None:
    with database.transaction() as session:
        suspend_organization(session, actor=OPERATOR, organization_id=organization_id)


@pytest.fixture(params=["/v1", "agent", "/v1 whole"])
def entry_point(
    request: pytest.FixtureRequest,
    database: Database,
    valkey_server: EmbeddedValkey,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[EntryPoint]:
    """Return each entry point, with the periodic checks several times a second."""
    monkeypatch.setattr(heartbeats, "ROUND_SECONDS", 0.05)
    monkeypatch.setattr(turn_heartbeats, "ROUND_SECONDS", 0.02)
    monkeypatch.setattr(turn_heartbeats, "RENEWAL_SECONDS", 0.02)
    monkeypatch.setattr(revocation_watcher, "CHECK_SECONDS", 0.05)
    opened = threading.Event()
    monkeypatch.setattr(
        "shared.models.engine.Translator.__init__", _signal_start(Translator.__init__, opened)
    )
    channel = ReplyChannel(connect_valkey(valkey_server.url))
    running = RevocationWatcher(CallerRevalidator(database))
    with model_calls(database, valkey_server.url, channel, tmp_path) as calls:
        if request.param != "agent":
            yield ClientEntryPoint(calls, running, is_stream=request.param == "/v1", is_opened=opened.is_set)
        else:
            catalog = tmp_path / "models.toml"
            with make_agents(database, valkey_server.url, tmp_path, models_config=catalog) as agents:
                yield AgentEntryPoint(agents)
    running.close()
    channel.close()


def _signal_start(begin: Callable[..., None], opened: threading.Event) -> Callable[..., None]:
    """Set the event once the provider has begun to respond: its translator is created then."""

    def begun(*arguments: Any, **facts: Any) -> None:
        begin(*arguments, **facts)
        opened.set()

    return begun


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> list[Outcome]:
    """Return the outcomes that the engine has settled."""
    outcomes: list[Outcome] = []
    settle = Engine.settle

    def noted(engine: Engine, leased: LeasedCall, outcome: Outcome) -> None:
        outcomes.append(outcome)
        settle(engine, leased, outcome)

    monkeypatch.setattr(Engine, "settle", noted)
    return outcomes


def record_of(database: Database, entry_point: EntryPoint) -> dict[str, Any]:
    """Return the one usage record of the organization, after checking that its books agree."""
    statement = text("SELECT * FROM usage_records WHERE organization_id = :id")
    with database.autocommit() as session:
        (row,) = session.execute(statement, {"id": str(entry_point.organization_id)})
    record = dict(row._mapping)
    assert entry_point.balance.held == 0
    assert entry_point.balance.balance == CREDITS - record["cost"]
    assert record["cost"] == record["prompt_tokens"] + 2 * record["completion_tokens"]
    assert entry_point.discrepancies() == []
    return record


@pytest.mark.parametrize(
    ("prompt", "model", "charged", "whole"),
    [
        pytest.param("!tokens 9", "scripted/chat", ("completed", 2, 9, False), None, id="completed"),
        pytest.param("!tokens 9", "scripted/responses", ("completed", 2, 9, False), None, id="translated"),
        pytest.param(
            "!tokens 9\n!no-usage", "scripted/chat", ("completed", 16, 14, True), None, id="unreported"
        ),
        pytest.param(
            "!tokens 3\n!length", "scripted/chat", ("incomplete", 3, 3, False), None, id="incomplete"
        ),
        pytest.param("!refuse I will not", "scripted/chat", ("completed", 4, 3, False), None, id="refused"),
        pytest.param("!fail 400", "scripted/chat", NOTHING, None, id="refused by the provider"),
        pytest.param("!fail 503", "scripted/chat", NOTHING, None, id="failed early"),
        pytest.param("!wait 500", "scripted/hasty", NOTHING, ("completed", 2, 3, False), id="too slow"),
        pytest.param("!wait 5000", "scripted/due", NOTHING, None, id="too slow in all"),
        pytest.param(
            "!tokens 9\n!fail 500 after 4", "scripted/chat", ("failed", 18, 6, True), NOTHING, id="failed"
        ),
        pytest.param(
            "!tokens 9\n!break after 4", "scripted/chat", ("failed", 17, 6, True), NOTHING, id="cut off"
        ),
        pytest.param(
            "!tokens 9\n!end after 4", "scripted/responses", ("failed", 17, 6, True), NOTHING, id="unended"
        ),
    ],
)
def test_call_is_charged_the_same_by_each_entry_point(
    entry_point: EntryPoint,
    outcomes: list[Outcome],
    database: Database,
    prompt: str,
    model: str,
    charged: tuple[str, int, int, bool],
    whole: tuple[str, int, int, bool] | None,
) -> None:
    """`whole` is the charge of a call without a stream, if it differs from the charge of a stream."""
    entry_point.call(prompt, model)
    if whole is not None and isinstance(entry_point, ClientEntryPoint) and not entry_point.is_stream:
        charged = whole
    record = record_of(database, entry_point)
    names = ("status", "prompt_tokens", "completion_tokens", "is_estimated")
    assert tuple(record[name] for name in names) == charged
    (outcome,) = outcomes
    assert (outcome.status.value, outcome.is_estimated) == (charged[0], charged[3])
    assert record["provider"] == outcome.provider == "scripted"


@pytest.mark.parametrize("ending", ["cancel_in_the_middle", "revoke_in_the_middle"])
def test_abandoned_call_is_charged_for_its_known_usage(
    entry_point: EntryPoint, outcomes: list[Outcome], database: Database, ending: str
) -> None:
    getattr(entry_point, ending)(LONG)
    record = record_of(database, entry_point)
    assert (record["status"], record["is_estimated"]) == ("cancelled", True)
    if isinstance(entry_point, ClientEntryPoint) and not entry_point.is_stream:
        assert (record["prompt_tokens"], record["completion_tokens"]) == (17, 0)
    else:
        assert 5 <= record["completion_tokens"] < 1000
    assert [outcome.status for outcome in outcomes] == ["cancelled"]


def test_internal_error_is_settled_by_each_entry_point(
    entry_point: EntryPoint, outcomes: list[Outcome], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> object:
        raise ZeroDivisionError

    monkeypatch.setattr("shared.models.engine.Translator.feed", broken)
    entry_point.call("!tokens 9", "scripted/chat")
    assert (record_of(database, entry_point)["status"], len(outcomes)) == ("failed", 1)
