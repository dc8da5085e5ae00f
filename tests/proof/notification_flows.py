"""Flows of notifications, paused imports, signing keys and sessions."""

import json
from functools import partial
from uuid import uuid4

from shared.deliveries.outbox import enqueue_delivery
from shared.deliveries.sender import Sender
from shared.encryption import Encryption
from shared.identity.access.authorization import OPERATOR
from shared.identity.sign_in.console_sessions import sign_out_everywhere
from shared.media.importing.import_notifications import KIND
from shared.media.notifications.notification_channel import DistributionChannel
from tests.proof.agent_flows import FETCH, IMPORTS, push_media, pushed_media, require_one_import
from tests.proof.file_flows import PLACE, job
from tests.proof.flows import Flow, State
from tests.proof.world import World
from tests.support.data.media_samples import PNG
from tests.support.data.media_sources import status
from tests.support.web.browser import begin_session, new_code
from tests.web.media.conftest import make_connector

_DUE = "UPDATE deliveries SET due_at = now() WHERE state IN ('Waiting', 'Sending') AND NOT is_held"
_TOLD = "SELECT state FROM deliveries WHERE destination_id = %(id)s AND event = %(event)s"
_OLD_KEYS = """
UPDATE signing_keys SET created_at = created_at - interval '400 d', activated_at = activated_at - interval '400 d'
"""
_ALERT = """
INSERT INTO budget_alerts (organization_id, budget_id, share, details)
VALUES (%(organization)s, %(budget)s, 80, %(details)s)
"""


def _with_endpoint(world: World) -> State:
    """Create a distribution whose endpoint accepts notifications."""
    connector = make_connector(world.front)
    path = f"/{uuid4().hex}"
    body = {"url": world.source.serve(path, status(204))}
    endpoint = f"/admin/distributions/{connector.id}/notification-endpoint"
    assert world.front.put(endpoint, world.operator, json=body).status_code == 200
    return {"connector": connector, "path": path, "id": connector.id}


def _notification(world: World) -> State:
    state = _with_endpoint(world)
    with world.database.transaction() as session:
        enqueue_delivery(
            session,
            kind=KIND,
            event="media.import.stored",
            destination_id=state["id"],
            organization_id=state["connector"].organization_id,
            body=b"{}",
        )
    return state


def _deliver(world: World, _: State) -> None:
    """Send due notifications, and those that another sender left unfinished."""
    world.sql(_DUE)
    settings = world.front.settings
    sender = Sender(world.database, settings, {KIND: DistributionChannel(Encryption(settings), _unchanged)})
    try:
        sender.send_due()
    finally:
        sender.close()


def _unchanged(_: object, body: bytes) -> bytes:
    return body


def _require_delivered(world: World, state: State) -> None:
    """Check that the notification is delivered. An endpoint recognizes a repetition by the id."""
    assert world.sql(_TOLD, id=state["id"], event="media.import.stored") == [("Delivered",)]
    told = [headers["webhook-id"] for path, headers in world.source.requests if path == state["path"]]
    assert len(set(told)) == 1
    assert len(told) <= 3


def _expired(world: World) -> State:
    """Create media whose retention has ended, of a distribution with an endpoint."""
    state = _with_endpoint(world)
    answer = state["connector"].push_form(PNG)
    imported = state["connector"].read(answer.json["importId"])
    for table, column, key in (
        ("files", "retention_expires_at", "id"),
        ("expiring_media", "expires_at", "file_id"),
    ):
        ended = f"UPDATE {table} SET {column} = now() - interval '1 s' WHERE {key} = %(id)s"
        world.sql(ended, id=imported["fileId"])
    return state


def _require_told_once(event: str, world: World, state: State) -> None:
    assert len(world.sql(_TOLD, id=state["id"], event=event)) == 1


def _alert(world: World) -> State:
    """Create an alert as a settlement does, of an organization with an endpoint."""
    organization_id = world.front.identity.organization().id
    body = {"url": world.source.serve(f"/{uuid4().hex}", status(204))}
    endpoint = f"/admin/organizations/{organization_id}/notification-endpoint"
    assert world.front.put(endpoint, world.operator, json=body).status_code == 200
    subject = {"subject_kind": "user", "subject_id": str(uuid4()), "model": None}
    details = {**subject, "period": "day", "amount": 5, "spent": 4, "resets_at": None}
    world.sql(_ALERT, organization=organization_id, budget=uuid4(), details=json.dumps(details))
    return {"id": organization_id}


def _held(world: World) -> State:
    """Create an import that was paused, and whose cause has been repaired since."""
    state = pushed_media(world)
    push_media(world, state)
    message_id = state["media"]["messageId"]
    world.sql(
        "UPDATE media_imports SET state = 'Held', code = 'storage_unpaid', is_ready = false, due_at = now()"
        " WHERE message_id = %(id)s",
        id=message_id,
    )
    return state


def _due_keys(world: World) -> State:
    world.sql(_OLD_KEYS)
    return {"rotated": _rotations(world)}


def _rotations(world: World) -> int:
    return int(world.sql("SELECT count(*) FROM audit_events WHERE action = 'signing_key.rotated'")[0][0])


def _require_rotated(world: World, state: State) -> None:
    states = world.sql(
        "SELECT purpose, state, count(*) FROM signing_keys WHERE state <> 'previous' GROUP BY 1, 2"
    )
    assert {count for _, _, count in states} == {1}, states
    assert _rotations(world) == state["rotated"] + 2


def _signed_in(world: World) -> State:
    """Create a user with two sessions and an unused sign-in link."""
    someone = world.front.identity.person(world.organization_id)
    for _ in range(2):
        begin_session(world.front, someone.user_id, world.organization_id)
    new_code(world.front, someone.user_id)
    return {"id": someone.user_id}


def _sign_out_everywhere(world: World, state: State) -> None:
    with world.database.transaction() as session:
        sign_out_everywhere(session, actor=OPERATOR, user_id=state["id"])


def _require_signed_out(world: World, state: State) -> None:
    live = "SELECT 1 FROM console_sessions WHERE user_id = %(id)s AND revoked_at IS NULL"
    unused = "SELECT 1 FROM console_links WHERE user_id = %(id)s AND used_at IS NULL"
    assert world.sql(live, id=state["id"]) == world.sql(unused, id=state["id"]) == []
    ended = "SELECT 1 FROM audit_events WHERE action = 'console_session.ended' AND resource_id = %(id)s"
    assert len(world.sql(ended, id=state["id"])) == 1


FLOWS = (
    Flow(name="notification", prepare=_notification, steps=(_deliver,), require=_require_delivered),
    Flow(
        name="expiry is told",
        prepare=_expired,
        steps=(job("media.notice_expired"),),
        require=partial(_require_told_once, "file.expired"),
        sweeps=("media.notice_expired",),
    ),
    Flow(
        name="alert of a budget",
        prepare=_alert,
        steps=(job("credits.send_budget_alerts"),),
        require=partial(_require_told_once, "budget.share_reached"),
        sweeps=("credits.send_budget_alerts",),
    ),
    Flow(
        name="import that was held",
        prepare=_held,
        steps=(job("media.resume_held"), FETCH, PLACE),
        require=require_one_import,
        sweeps=("media.resume_held", *IMPORTS),
    ),
    Flow(
        name="signing keys that are due",
        prepare=_due_keys,
        steps=(job("identity.rotate_due_keys"),),
        require=_require_rotated,
        sweeps=("identity.rotate_due_keys",),
    ),
    Flow(
        name="sign-out everywhere",
        prepare=_signed_in,
        steps=(_sign_out_everywhere,),
        require=_require_signed_out,
    ),
)
