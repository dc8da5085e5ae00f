"""A network's webhook delivers a message to the agent, if the distribution routes messages."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from shared.a2a.exact_json import parse
from shared.a2a.inbound.dispatcher import MessageDispatcher, route_due_messages
from shared.a2a.inbound.forwarder import MessageForwarder
from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.distributions import get_distribution, update_distribution
from tests.support import networks
from tests.support.agents.agent_worker import answering_turns
from tests.support.data.media_samples import JPEG, PNG
from tests.support.web.web_process import Front
from tests.web.a2a.conftest import give_behavior_to
from tests.web.inbound.conftest import SCRIPT
from tests.web.media.conftest import fetch, sql
from tests.web.media.webhook_senders import Line, open_line


@pytest.fixture(scope="module", autouse=True)
def worker(front: Front) -> Iterator[None]:
    with answering_turns(front.services):
        yield
    front.services.agents.watch.close()


@pytest.fixture(params=networks.STAND_INS, ids=lambda make: make.name)
def line(request: pytest.FixtureRequest, front: Front) -> Iterator[Line]:
    make: type[networks.StandIn] = request.param
    with make() as stand_in:
        line = open_line(front, stand_in)
        with front.services.database.transaction() as session:
            update_distribution(
                session, actor=OPERATOR, distribution_id=line.distribution_id, routes_messages=True
            )
            made = get_distribution(session, actor=OPERATOR, distribution_id=line.distribution_id)
        give_behavior_to(front, made.deployment_id, SCRIPT, input_modes=("*/*",))
        yield line


def number() -> str:
    return str(uuid4().int % 1_000_000)


def send(line: Line, body: bytes) -> None:
    response = line.send(body)
    assert response.status_code < 300, response.text


def route(front: Front) -> None:
    forwarder = MessageForwarder(settings=front.settings, router=front.services.agents.router)
    while route_due_messages(MessageDispatcher(database=front.services.database, forwarder=forwarder)):
        pass


def rows(line: Line) -> list[Any]:
    statement = "SELECT * FROM distribution_messages WHERE distribution_id = :id ORDER BY id"
    return sql(line.front, statement, id=line.distribution_id)


def received_message(line: Line, task_id: object) -> Any:
    (row,) = sql(
        line.front, "SELECT message FROM task_messages WHERE task_id = :id AND number = 1", id=task_id
    )
    return parse(row.message)


def test_a_text_is_sent_to_the_agent_once(front: Front, line: Line) -> None:
    body = line.stand_in.says("hello", number())
    send(line, body)
    send(line, body)
    route(front)
    (row,) = rows(line)
    assert (row.state, row.network) == ("Routed", line.stand_in.name)
    assert received_message(line, row.task_id)["parts"] == [{"text": "hello"}]
    (turn,) = sql(front, "SELECT * FROM task_turns WHERE id = :id", id=row.turn_id)
    assert parse(turn.request)["channel"] == line.stand_in.name
    assert parse(turn.reported_caller)["id"]


def test_texts_of_one_chat_share_a_context(front: Front, line: Line) -> None:
    for text in ("one", "two"):
        send(line, line.stand_in.says(text, number()))
    route(front)
    assert len({row.context_id for row in rows(line)}) == 1
    assert len({row.task_id for row in rows(line)}) == 2


def test_a_file_comes_with_its_message(front: Front, line: Line) -> None:
    sample = JPEG if line.stand_in.sends_files_singly else PNG
    send(line, line.stand_in.message(line.stand_in.keep(sample), message=number()))
    fetch(front)
    route(front)
    (row,) = rows(line)
    assert row.state == "Routed", row.code
    parts = received_message(line, row.task_id)["parts"]
    assert parts[-1]["mediaType"] == sample.media_type
    assert "/files/" in parts[-1]["url"]


def test_messages_are_routed_only_if_the_distribution_is_configured(front: Front, line: Line) -> None:
    with front.services.database.transaction() as session:
        update_distribution(
            session, actor=OPERATOR, distribution_id=line.distribution_id, routes_messages=False
        )
    send(line, line.stand_in.says("hello", number()))
    assert rows(line) == []


def test_message_refused_by_the_agent_is_acknowledged_and_recorded(front: Front, line: Line) -> None:
    sql(
        front,
        "DELETE FROM role_bindings WHERE subject_identity_id IN (SELECT daemon_identity_id FROM deployments"
        " JOIN distributions ON deployments.id = deployment_id WHERE distributions.id = :id)",
        id=line.distribution_id,
    )
    send(line, line.stand_in.says("hello", number()))
    route(front)
    (row,) = rows(line)
    assert (row.state, row.code) == ("Refused", "permission_denied")


def test_message_to_an_account_reaches_the_agent_of_its_distribution(line: Line, front: Front) -> None:
    if line.stand_in.name != "slack":
        pytest.skip("accounts of each network: tests/web/media/test_network_accounts.py")
    app = open_line(front, line.stand_in)
    path = f"{app.settings_path}/accounts/T9"
    target = {"targetDistributionId": str(line.distribution_id)}
    assert front.put(path, app.administrator.authorization, json=target).status_code == 200
    body = json.loads(app.stand_in.says("Hello", number())) | {"team_id": "T9"}
    send(app, json.dumps(body).encode())
    route(front)
    assert [len(rows(at)) for at in (app, line)] == [0, 1]
