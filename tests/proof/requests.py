"""Requests of the protocols that write without an idempotency key: agents, networks, payments, invitations."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import uuid4

from werkzeug.test import TestResponse

from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.directory.invitations import invite_member
from tests.proof.administration import make_cast, request_as
from tests.proof.console import agent_of_console, post, task_of_console
from tests.proof.world import World
from tests.proof.writes import Ask, Write
from tests.support.data.media_samples import PNG
from tests.support.files.file_requests import succeed
from tests.support.networks.slack import SlackStandIn
from tests.support.web.browser import new_code
from tests.web.console.test_action_items import push
from tests.web.credits.test_payments import Payer, stripe_header
from tests.web.identity.test_administration_matrix import World as Cast
from tests.web.identity.test_administration_matrix import address
from tests.web.media.conftest import make_connector
from tests.web.media.webhook_senders import Line, open_line
from web.console import cookies

PUSH = {"url": "https://client.example/hook"}


def _asking(world: World, authorization: str, method: str, path: str, **sent: Any) -> Ask:
    return partial(request_as, authorization, world.once(make_cast), method, path, **sent)


def _of_task(method: str, rest: str, world: World, *, body: Any = None, has_push: bool = False) -> Ask:
    """Return a request about a task that no worker has begun to run."""
    cast: Cast = world.once(make_cast)
    by = cast.owner.authorization
    path = f"/agents/{agent_of_console(world).deployment.id}/tasks/{task_of_console(world, by)}"
    if has_push:
        succeed(world.front.post(f"{path}/pushNotificationConfigs", by, json=PUSH | {"id": "mine"}))
    sent = {} if body is None else {"json": body}
    return _asking(world, by, method, path + rest, **sent)


def _cancel_by_rpc(world: World) -> Ask:
    cast: Cast = world.once(make_cast)
    by = cast.owner.authorization
    task_id = task_of_console(world, by)
    body = {"jsonrpc": "2.0", "id": 1, "method": "CancelTask", "params": {"id": task_id}}
    return _asking(world, by, "POST", f"/agents/{agent_of_console(world).deployment.id}", json=body)


def _retry(is_one: bool, state: str, world: World) -> Ask:
    cast: Cast = world.once(make_cast)
    connector = make_connector(world.front, cast.organization_id)
    import_id = push(connector, state, "media_gone")
    path = f"{connector.path}/{import_id}/retry" if is_one else f"{connector.path}/retry"
    return _asking(world, cast.owner.authorization, "POST", path, json={})


def _accept(world: World) -> Ask:
    someone = world.front.identity.person(world.front.identity.organization().id)
    body = {"token": _invite(world, someone.email)}
    return _asking(world, someone.authorization, "POST", "/admin/invitations/accept", json=body)


def _register(world: World) -> Ask:
    return _asking(world, "", "POST", "/invitations/register", json={"token": _invite(world, address())})


def _invite(world: World, email: str) -> str:
    organization_id = world.front.identity.organization().id
    with world.database.transaction() as session:
        issued = invite_member(
            session, actor=OPERATOR, organization_id=organization_id, email=email, role=Role.MEMBER
        )
    return issued.token.value


def _revoke_token(world: World) -> Ask:
    made = world.front.identity.deployment(world.organization_id)
    client = {
        "client_id": str(made.deployment.client_id),
        "client_secret": made.credential.secret.value,
        "token": world.front.identity.access_token(made),
    }
    return _asking(world, "", "POST", "/oauth/revoke", data=client)


def _exchange(world: World) -> Ask:
    made = world.front.identity.deployment(world.organization_id)
    client = {"client_id": str(made.deployment.client_id), "client_secret": made.credential.secret.value}
    return _asking(world, "", "POST", "/oauth/token", data={"grant_type": "client_credentials", **client})


def _pay(world: World) -> Ask:
    payer = Payer(world.front)
    return _tell(world, payer.paid())


def _refund(world: World) -> Ask:
    payer = Payer(world.front)
    assert payer.result(payer.paid()) == "credited"
    return _tell(world, payer.refunded(1_000))


def _tell(world: World, event: Any) -> Ask:
    body = json.dumps(event).encode()
    headers = {"Content-Type": "application/json", "Stripe-Signature": stripe_header(body)}
    client = world.front.app.test_client()
    return partial(client.post, "/payments/stripe/events", data=body, headers=headers, buffered=True)


def _receive_webhook(world: World) -> Ask:
    line = open_line(world.front, SlackStandIn())
    body = line.stand_in.message(line.stand_in.keep(PNG), message=str(uuid4().int % 1_000_000_000))
    return partial(_send_webhook, line, body)


def _send_webhook(line: Line, body: bytes) -> TestResponse:
    signed = line.stand_in.sign(body, url=line.url)
    client = line.front.app.test_client()
    return client.post(line.path, data=body, headers=signed, buffered=True)


def _sign_in(world: World) -> Ask:
    someone = world.front.identity.person(world.organization_id)
    fields = {"code": new_code(world.front, someone.user_id)}
    return partial(post, world, "/console/in", uuid4().hex, fields, cookies.ATTEMPT)


def _named(**prepares: Callable[[World], Ask]) -> Iterator[Write]:
    for name, prepare in prepares.items():
        yield Write(name=name, prepare=prepare)


WRITES = (
    *_named(
        cancel_task=partial(_of_task, "POST", ":cancel", body={}),
        cancel_task_by_rpc=_cancel_by_rpc,
        create_push_configuration=partial(
            _of_task, "POST", "/pushNotificationConfigs", body=PUSH | {"id": "mine"}
        ),
        create_push_configuration_without_id=partial(_of_task, "POST", "/pushNotificationConfigs", body=PUSH),
        delete_push_configuration=partial(_of_task, "DELETE", "/pushNotificationConfigs/mine", has_push=True),
        retry_failed_import=partial(_retry, True, "Failed"),
        retry_held_import=partial(_retry, True, "Held"),
        retry_imports=partial(_retry, False, "Failed"),
        accept_invitation=_accept,
        register_invited=_register,
        issue_token=_exchange,
        revoke_token=_revoke_token,
        receive_payment=_pay,
        receive_refund=_refund,
        receive_webhook=_receive_webhook,
        sign_in=_sign_in,
    ),
)
