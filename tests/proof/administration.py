"""Administrative operations that write, each called by a user with the permission.

`tests/web/identity/test_administration_matrix.py` lists what each operation needs and who may call it.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from sqlalchemy import text
from werkzeug.test import TestResponse

from shared.identity.access.roles import Role
from tests.proof.world import World
from tests.proof.writes import Ask, Write
from tests.web.identity.test_administration_matrix import OPERATIONS, TABLE, USERS, Attempt
from tests.web.identity.test_administration_matrix import World as Cast

OF_ORGANIZATIONS = frozenset(
    {
        *("put_organization_endpoint", "remove_organization_endpoint", "replay_organization_notifications"),
        *("create_budget", "top_up_credits", "adjust_credits", "set_credit_policy"),
    }
)
"""Operations on a setting that an organization has once. Each attempt uses an organization of its own."""
_KEYS_ARE_KNOWN = text("UPDATE signing_keys SET created_at = created_at - interval '1 day'")
_NOT_SELECTED = text("UPDATE users SET active_organization_id = NULL WHERE id = :user")
_NEXT_KEY = text("SELECT kid FROM signing_keys WHERE state = 'next' LIMIT 1")


def _rotation(cast: Cast) -> Attempt:
    """Make the next keys old enough to be known everywhere, so that a rotation changes something."""
    with cast.front.services.database.transaction() as session:
        session.execute(_KEYS_ARE_KNOWN)
    return Attempt(path="signing-keys/rotate")


def _next_key(cast: Cast) -> Attempt:
    with cast.front.services.database.transaction() as session:
        return Attempt(path=f"signing-keys/{session.execute(_NEXT_KEY).scalar_one()}/revoke")


def _dead_notifications(cast: Cast) -> Attempt:
    path = TABLE["resend_notification"].attempt(cast).path
    return Attempt(path=f"{path.partition('/notifications/')[0]}/notifications/resend-dead")


def _selection(cast: Cast) -> Attempt:
    """Clear the owner's selected organization first, so that the selection changes something."""
    with cast.front.services.database.transaction() as session:
        session.execute(_NOT_SELECTED, {"user": cast.owner.user_id})
    return TABLE["select_active_organization"].attempt(cast)


OWN: dict[str, Callable[[Cast], Attempt]] = {
    "rotate_signing_keys": _rotation,
    "revoke_signing_key": _next_key,
    "resend_dead_notifications": _dead_notifications,
    "select_active_organization": _selection,
}
"""Attempts that replace those of the table, which would change nothing."""
UNDOING = {"enable": "disable", "resume": "suspend"}
"""Operations that change something only after their opposite."""


def make_cast(world: World) -> Cast:
    """Create all users and resources of the table of operations."""
    make = world.front.identity
    organization_id = make.organization().id
    deployment, principal = make.deployment(organization_id), make.principal(organization_id)
    distribution = make.distribution(
        organization_id, principal_id=principal.id, deployment_id=deployment.deployment.id
    )
    return Cast(
        front=world.front,
        organization_id=organization_id,
        operator=make.operator(),
        owner=make.person(organization_id, Role.WORKSPACE_OWNER),
        admin=make.person(organization_id, Role.WORKSPACE_ADMIN),
        member=make.person(organization_id),
        stranger=make.person(make.organization("Elsewhere").id, Role.WORKSPACE_OWNER),
        deployment=deployment,
        principal_id=principal.id,
        distribution_token=distribution.token.value,
        described={},
    )


def attempt_of(cast: Cast, name: str) -> Attempt:
    """Create the resource that an operation acts on, in a state that the operation changes."""
    attempt = OWN.get(name, TABLE[name].attempt)(cast)
    verb = attempt.path.rpartition("/")[2]
    if verb in UNDOING:
        before = attempt.path.removesuffix(verb) + UNDOING[verb]
        assert cast.front.post(f"/admin/{before}", cast.operator.authorization).status_code == 200
    return attempt


def _prepare(name: str, world: World) -> Ask:
    cast: Cast = world.once(make_cast)
    if name in OF_ORGANIZATIONS:
        cast = replace(cast, organization_id=cast.front.identity.organization().id)
    return partial(_ask, cast, name, attempt_of(cast, name))


def _ask(cast: Cast, name: str, attempt: Attempt) -> TestResponse:
    by = next(user for user in USERS if user in TABLE[name].allowed)
    sent = {} if attempt.body is None else {"json": attempt.body}
    return request_as(
        getattr(cast, by).authorization, cast, OPERATIONS[name].method, f"/admin/{attempt.path}", **sent
    )


def request_as(authorization: str, cast: Cast, method: str, path: str, **sent: Any) -> TestResponse:
    """Ask with a client of one's own: what a thread asks meets no other's cookies."""
    client = cast.front.app.test_client()
    headers = {"Authorization": authorization} if authorization else {}
    return client.open(path, method=method, headers=headers, buffered=True, **sent)


WRITES = tuple(
    Write(name=name, prepare=partial(_prepare, name))
    for name in TABLE
    if OPERATIONS[name].method != "GET" and TABLE[name].allowed
)
