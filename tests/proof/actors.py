"""Actors that act between two steps of a flow. Each runs a whole operation over connections of its own.

The actor's response is kept in the flow's state under `visitor`; the flow's `agree` checks it.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from werkzeug.test import TestResponse

from shared.credits.sweeps import mark_unresolved, release_overdue_holds, settle_unresolved
from shared.files.lifecycle.expiry import expire_due
from shared.files.lifecycle.garbage_collection import collect_garbage
from shared.files.lifecycle.placement import place_staged
from shared.files.resumable.expiry import expire_uploads
from shared.files.sweeps import sweep_staging
from shared.messaging.replies import ReplyAddress
from shared.models.execution import execute
from shared.models.invocations import give_up
from shared.models.queue.call_queue import cancel
from tests.proof.flows import Actor, State
from tests.proof.world import World
from tests.web.files.conftest import demote


def find_file(world: World, state: State) -> Any | None:
    """Find the file of a flow: the one that it started with, or the one that its operation has created."""
    if "file" in state:
        return state["file"]
    found = world.sql(
        "SELECT v.file_id, v.id, v.revision FROM file_operations o JOIN file_versions v ON v.id = o.version_id"
        " WHERE o.operation_id = %(id)s",
        id=state["operation"],
    )
    return dict(zip(("id", "versionId", "revision"), map(str, found[0]), strict=True)) if found else None


def _on_file(ask: Callable[[World, Any], TestResponse]) -> Callable[[World, State], object]:
    def act(world: World, state: State) -> None:
        file = find_file(world, state)
        if file is not None:
            state["visitor"] = ask(world, file)

    return act


def _delete_and_collect(world: World, state: State) -> None:
    _delete(world, state)
    collect_garbage(world.later, world.front.services.blobs)


def _let_it_expire(world: World, _: State) -> None:
    """Expire due files, two hours later."""
    expire_due(world.later, world.front.services.blobs)


def _place_later(world: World, _: State) -> None:
    """Place staged content on another worker, two hours later, when leases have expired."""
    place_staged(world.later, world.front.services.blobs)


def _collect(world: World, _: State) -> None:
    collect_garbage(world.later, world.front.services.blobs)


def _sweep_staging(world: World, _: State) -> None:
    sweep_staging(world.database, world.front.services.blobs)


def _revoke(world: World, state: State) -> None:
    """Remove all roles of the flow's agent. What it committed before is kept."""
    demote(world.front, world.deployment)
    state["revoked"] = True
    state["was_written"] = find_written(world, state)


def find_written(world: World, state: State) -> bool:
    """Return whether a flow's operation has been committed."""
    return bool(world.sql("SELECT 1 FROM file_operations WHERE operation_id = %(id)s", id=state["operation"]))


def _take_over(world: World, state: State) -> None:
    """Ask for the upload's progress with another request of the same client, which takes the upload over."""
    if "begun" in state:
        world.agent.progress(state["begun"])


def _cancel(world: World, state: State) -> None:
    if "begun" in state:
        state["visitor"] = world.agent.cancel(state["begun"])


def _give_up_uploads(world: World, _: State) -> None:
    world.sql("UPDATE resumable_uploads SET expires_at = now() WHERE state = 'Receiving'")
    expire_uploads(world.database)


def _newest_call(world: World) -> ReplyAddress:
    """Find the running call of a flow."""
    payer = world.calls.caller.payer_id
    newest = (
        "SELECT id FROM invocations WHERE organization_id = %(id)s ORDER BY created_at DESC, id DESC LIMIT 1"
    )
    found = UUID(world.sql(newest, id=payer)[0][0])
    return ReplyAddress(channel=world.calls.invoker.replies._name, invocation_id=found)


def _give_up_call(world: World, _: State) -> None:
    """Give the call up as its web process does when its timeout has expired."""
    give_up(world.calls.invoker, _newest_call(world).invocation_id)


def _cancel_call(world: World, _: State) -> None:
    cancel(world.calls.valkey, _newest_call(world).invocation_id)


def _do_again(world: World, _: State) -> None:
    """Deliver the call's message to another worker as well."""
    execute(world.calls.executor, _newest_call(world))


def _recover(world: World, _: State) -> None:
    """Run the sweeps two hours later, on the call as its worker left it."""
    release_overdue_holds(world.later)
    mark_unresolved(world.later)
    settle_unresolved(world.later)


_delete = _on_file(lambda world, file: world.agent.delete(file))
DELETE = Actor(name="delete", act=_delete)
DELETE_AND_COLLECT = Actor(name="delete, with its collection", act=_delete_and_collect)
RENEW = Actor(name="renewal", act=_on_file(lambda world, file: world.agent.renew(file, None)))
REPLACE = Actor(name="replace", act=_on_file(lambda world, file: world.agent.replace(file, b"another")))
GRANT = Actor(name="grant", act=_on_file(lambda world, file: world.agent.grant(file)))
REFER = Actor(name="reference", act=_on_file(lambda world, file: world.agent.refer(file)))
EXPIRE = Actor(name="expiry", act=_let_it_expire)
PLACE = Actor(name="placement", act=_place_later)
COLLECT = Actor(name="collection", act=_collect)
SWEEP = Actor(name="sweep of staging", act=_sweep_staging)
REVOKE = Actor(name="revocation", act=_revoke, ends_agent=True)
TAKE_OVER = Actor(name="take-over", act=_take_over)
CANCEL = Actor(name="cancellation", act=_cancel)
GIVE_UP = Actor(name="expiry of uploads", act=_give_up_uploads)
GIVE_UP_CALL = Actor(name="end of patience", act=_give_up_call)
CANCEL_CALL = Actor(name="cancellation of the call", act=_cancel_call)
DO_AGAIN = Actor(name="another worker", act=_do_again)
RECOVER = Actor(name="recovery", act=_recover)
