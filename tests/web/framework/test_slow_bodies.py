"""A caller who is revoked while the body arrives is refused: every operation with a small body in the OpenAPI document.

Reading the body revokes the caller, which simulates a slow client. The rows are restored after each request.
"""

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlencode

import pytest
from sqlalchemy import Table, delete, func, insert, update
from werkzeug.test import TestResponse

from deploy.embedded.valkey import EmbeddedValkey
from shared.db.database import Database
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.console_tables import console_sessions
from shared.identity.directory.organizations import suspend_organization
from shared.identity.secrets import hash_secret
from shared.identity.sign_in.console_sessions import issue_link, sign_in
from shared.identity.tables import api_keys, client_credentials, distributions, memberships, role_bindings
from tests.support.data.statements import own_statements
from tests.support.web.web_process import Front, open_front
from tests.web.test_cross_organization import BODIES, EXAMPLES, OPERATIONS, REFUSALS, World, world
from web.console.csrf import FIELD, token_for
from web.console.declarations import SIGN_IN
from web.framework.authentication import SESSION_COOKIE
from web.http.url_encoded import FORM

__all__ = ["world"]

JSON = "application/json"
SIGNED = {"receive_webhook", "receive_payment_event"}
"""The signature is of the body, and verified after it."""
WITH_BODY = sorted(
    name
    for name, (_, _, operation) in OPERATIONS.items()
    if JSON in operation.get("requestBody", {}).get("content", {}) and name not in SIGNED
)
ADMINISTRATIVE = [name for name in WITH_BODY if OPERATIONS[name][1].startswith("/admin/")]
OF_ANYBODY = {"select_active_organization", "issue_api_key", "accept_invitation"}
"""What every user does for themselves."""
OF_AGENTS = [
    name
    for name in WITH_BODY
    if not OPERATIONS[name][1].startswith(("/admin/", "/distributions/", "/oauth/"))
]
"""What a deployment asks."""
Act = Callable[[], object]


class SlowBody(io.RawIOBase):
    """A body that runs a function while the server waits for it."""

    def __init__(self, content: bytes, meanwhile: Act) -> None:
        super().__init__()
        self._content = io.BytesIO(content)
        self._meanwhile = meanwhile

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._content.tell():
            self._meanwhile()
        return self._content.readinto(buffer)


def send(
    front: Front, method: str, path: str, headers: dict[str, str], body: Any, meanwhile: Act, **options: Any
) -> TestResponse:
    content = json.dumps(body).encode()
    overrides = {"wsgi.input": SlowBody(content, meanwhile), "CONTENT_LENGTH": str(len(content))}
    return front.client.open(
        path,
        method=method,
        headers=headers,
        content_type=JSON,
        environ_overrides=overrides,
        buffered=True,
        **options,
    )


def ask(world: World, name: str, kind: str, meanwhile: Act) -> TestResponse:
    method, template, operation = OPERATIONS[name]
    body, query = EXAMPLES.body(operation, BODIES.get(name)), EXAMPLES.query(operation)
    headers = world.insiders[kind]
    return send(
        world.front, method, world.path(template), headers, body["json"], meanwhile, query_string=query
    )


def is_refused(name: str, answer: TestResponse) -> bool:
    return answer.status_code in REFUSALS or (name.startswith("call_") and "error" in answer.get_json())


def change(database: Database, table: Table, *which: Any, **values: Any) -> None:
    with database.transaction() as session:
        assert session.execute(update(table).where(*which).values(**values)).rowcount == 1


def credential_of(world: World, kind: str) -> bytes:
    return hash_secret(world.insiders[kind]["Authorization"].removeprefix("Bearer "))


@pytest.mark.parametrize("name", WITH_BODY)
def test_credential_revoked_while_the_body_arrives_has_no_effect(world: World, name: str) -> None:
    database, path = world.front.services.database, OPERATIONS[name][1]
    acts = world.count_acts()
    if path.startswith(("/distributions/", "/oauth/")) and name != "retry_imports":
        kind = "distribution"
        is_it, revoked, live = (
            distributions.c.token_hash,
            {"token_hash": bytes(32)},
            credential_of(world, kind),
        )
        revoke = partial(change, database, distributions, is_it == live, **revoked)
        restore = partial(change, database, distributions, is_it == bytes(32), token_hash=live)
    else:
        kind = "owner"
        own = api_keys.c.hash == credential_of(world, kind)
        revoke = partial(change, database, api_keys, own, revoked_at=func.now())
        restore = partial(change, database, api_keys, own, revoked_at=None)
    try:
        answer = ask(world, name, kind, revoke)
    finally:
        restore()
    assert answer.status_code == 401, answer.text
    assert world.count_acts() == acts


@pytest.mark.parametrize("name", sorted({*ADMINISTRATIVE} - OF_ANYBODY))
def test_owner_demoted_while_the_body_arrives_changes_nothing(world: World, name: str) -> None:
    acts = world.count_acts()
    own = (memberships.c.organization_id == world.acme, memberships.c.user_id == world.resources["userId"])
    take_role = partial(change, world.front.services.database, memberships, *own)
    try:
        answer = ask(world, name, "owner", partial(take_role, role=Role.MEMBER))
    finally:
        take_role(role=Role.WORKSPACE_OWNER)
    assert is_refused(name, answer), answer.text
    assert world.count_acts() == acts


@contextmanager
def taking_roles(world: World) -> Iterator[Act]:
    """Return a function that removes all roles from daemons; the end of the block restores them."""
    taken: list[Any] = []

    def take() -> None:
        of_identities = role_bindings.c.subject_identity_id.is_not(None)
        with world.front.services.database.transaction() as session:
            rows = session.execute(delete(role_bindings).where(of_identities).returning(*role_bindings.c))
            taken.extend(row._asdict() for row in rows)

    try:
        yield take
    finally:
        with world.front.services.database.transaction() as session:
            session.execute(insert(role_bindings), taken)


@pytest.mark.parametrize("name", OF_AGENTS)
def test_agent_that_loses_its_role_while_the_body_arrives_is_refused(world: World, name: str) -> None:
    with taking_roles(world) as take:
        answer = ask(world, name, "deployment", take)
    assert is_refused(name, answer), answer.text


def test_form_of_a_session_signed_out_while_it_arrives_has_no_effect(front: Front) -> None:
    organization_id = front.identity.organization().id
    person = front.identity.person(organization_id)
    with front.services.database.transaction() as session:
        begun = sign_in(session, issue_link(session, actor=OPERATOR, user_id=person.user_id).code.value)
    assert begun is not None
    own = console_sessions.c.id == begun.id
    sign_out = partial(change, front.services.database, console_sessions, own, revoked_at=func.now())
    form = urlencode({"organization": organization_id, FIELD: token_for(begun.token.value)}).encode()
    answer = front.client.post(
        "/console/organizations",
        headers={"Cookie": f"{SESSION_COOKIE}={begun.token.value}", "Sec-Fetch-Site": "same-origin"},
        content_type=FORM,
        environ_overrides={"wsgi.input": SlowBody(form, sign_out), "CONTENT_LENGTH": str(len(form))},
    )
    assert (answer.status_code, answer.headers["Location"]) == (303, SIGN_IN)


def test_credential_expiring_while_the_body_arrives_is_accepted(front: Front) -> None:
    organization_id = front.identity.organization().id
    person = front.identity.person(organization_id, Role.WORKSPACE_OWNER)
    own = api_keys.c.hash == hash_secret(person.api_key)
    expire = partial(change, front.services.database, api_keys, own, expires_at=func.now())
    path, headers = (
        f"/admin/organizations/{organization_id}/identities",
        {"Authorization": person.authorization},
    )
    answer = send(front, "POST", path, headers, {"name": "Mailbox"}, expire)
    assert answer.status_code == 201, answer.text


def test_a_user_of_a_suspended_organization_turns_to_another_however_slowly(front: Front) -> None:
    first, second = front.identity.organization().id, front.identity.organization().id
    person = front.identity.person(first)
    with front.services.database.transaction() as session:
        session.execute(
            insert(memberships).values(organization_id=second, user_id=person.user_id, role=Role.MEMBER)
        )
        suspend_organization(session, actor=OPERATOR, organization_id=first)
    headers, choice = {"Authorization": person.authorization}, {"organizationId": str(second)}
    answer = send(front, "PUT", "/admin/me/active-organization", headers, choice, lambda: None)
    assert answer.status_code == 200, answer.text


def test_body_within_the_cache_time_of_a_row_costs_no_query(
    database_url: str, valkey_server: EmbeddedValkey, tmp_path_factory: pytest.TempPathFactory
) -> None:
    blobs = tmp_path_factory.mktemp("cached")
    with open_front(
        database_url, valkey_server.url, blobs, live_row_cache_seconds=2.5, any_store=True
    ) as front:
        created = front.identity.deployment(front.identity.organization().id)
        headers = {"Authorization": front.identity.authorization(created)}
        refused = partial(
            send, front, "POST", "/v1/chat/completions", headers, {"model": "none"}, lambda: None
        )
        refused()
        with own_statements(front.services.database) as statements:
            assert refused().status_code == 400
    assert [at for at in statements if client_credentials.name in at] == []
