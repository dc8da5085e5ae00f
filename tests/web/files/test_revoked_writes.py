"""A caller that loses the right to write while its content is received stores nothing."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from shared import failpoints
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.credentials.api_keys import list_api_keys, revoke_api_key
from shared.identity.credentials.client_credentials import revoke_client_credential
from shared.identity.directory.deployments import CreatedDeployment, disable_deployment
from shared.identity.directory.distributions import disable_distribution
from shared.identity.directory.identities import disable_identity
from shared.identity.directory.memberships import change_member_role, remove_member
from shared.identity.directory.organizations import suspend_organization
from shared.identity.directory.users import disable_user
from shared.identity.directory.versions import revoke_version
from shared.identity.tokens.access_tokens import revoke_token, verify_access_token
from tests.support.data.identity import Person
from tests.support.files.file_requests import Asker, leaving_nothing, refuse, run_sql, succeed
from tests.support.processes.stack import wait_until
from tests.support.web.web_process import Front
from tests.web.files.conftest import ATTRIBUTION, agent_of, demote
from web.http import multipart

Act = Callable[[], object]
WAITING_FOR_LOCK = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


@dataclass(frozen=True, kw_only=True)
class Writer:
    """A new deployment that writes for a new receiving identity."""

    front: Front
    created: CreatedDeployment
    principal_id: Any
    distribution_id: Any
    direct: Asker
    attributed: Asker

    @property
    def organization_id(self) -> UUID:
        return self.created.deployment.organization_id

    def change(self, act: Callable[..., object], **named: Any) -> None:
        with self.front.services.database.transaction() as session:
            act(session, actor=OPERATOR, **named)

    def change_member(self, act: Callable[..., object], person: Person, **named: Any) -> None:
        self.change(act, organization_id=self.organization_id, user_id=person.user_id, **named)

    def revoke_keys(self, person: Person) -> None:
        with self.front.services.database.transaction() as session:
            for key in list_api_keys(session, actor=OPERATOR, user_id=person.user_id).items:
                revoke_api_key(session, actor=OPERATOR, key_id=key.id)

    def revoke_token(self) -> None:
        services = self.front.services
        token = self.direct.headers["Authorization"].removeprefix("Bearer ")
        claims = verify_access_token(services.signing_keys, services.settings, token)
        with services.database.transaction() as session:
            revoke_token(session, claims)


@pytest.fixture
def writer(front: Front) -> Writer:
    identity = front.identity
    organization_id = identity.organization().id
    created, principal = identity.deployment(organization_id), identity.principal(organization_id)
    distribution = identity.distribution(
        organization_id, principal_id=principal.id, deployment_id=created.deployment.id
    )
    direct = agent_of(front, created)
    headers = {**direct.headers, ATTRIBUTION: identity.attribution(distribution)}
    return Writer(
        front=front,
        created=created,
        principal_id=principal.id,
        distribution_id=distribution.distribution.id,
        direct=direct,
        attributed=replace(direct, headers=headers, owner_id=principal.id),
    )


@pytest.fixture(params=["after the last byte", "before the commit"])
def meanwhile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Act], None]:
    """Run an action after the content was received, or between its last check and the commit."""
    if request.param == "before the commit":
        return partial(_act_before_commit, monkeypatch)
    receive = multipart.receive_file_part

    def arrange(act: Act) -> None:
        def receive_and_act(*arguments: Any, **named: Any) -> Any:
            part = receive(*arguments, **named)
            act()
            return part

        monkeypatch.setattr("web.files.writes.receive_file_part", receive_and_act)

    return arrange


def _act_before_commit(patch: pytest.MonkeyPatch, act: Act) -> None:
    def reach(point: str) -> None:
        if point == "upload.before_commit":
            patch.setattr(failpoints, "hit", lambda _: None)
            act()

    patch.setattr(failpoints, "hit", reach)


ENDS: dict[str, tuple[Callable[[Writer], object], int, str]] = {
    "deployment": (
        lambda w: w.change(disable_deployment, deployment_id=w.created.deployment.id),
        401,
        "invalid_token",
    ),
    "daemon": (
        lambda w: w.change(disable_identity, identity_id=w.created.deployment.daemon_identity_id),
        401,
        "invalid_token",
    ),
    "secret": (
        lambda w: w.change(revoke_client_credential, credential_id=w.created.credential.credential.id),
        401,
        "invalid_token",
    ),
    "version": (
        lambda w: w.change(revoke_version, version_id=w.created.deployment.active_version_id),
        401,
        "invalid_token",
    ),
    "token": (lambda w: w.revoke_token(), 401, "invalid_token"),
    "organization": (
        lambda w: w.change(suspend_organization, organization_id=w.created.deployment.organization_id),
        403,
        "organization_suspended",
    ),
    "role": (lambda w: demote(w.front, w.created), 403, "permission_denied"),
}


@pytest.mark.parametrize("end", ENDS)
def test_upload_of_a_caller_revoked_meanwhile_stores_nothing(
    writer: Writer, meanwhile: Callable[[Act], None], end: str
) -> None:
    act, status, code = ENDS[end]
    meanwhile(lambda: act(writer))
    with leaving_nothing(writer.front):
        refuse(writer.direct.upload(b"late"), status, code)


@pytest.mark.parametrize("end", ENDS)
def test_replace_of_a_caller_revoked_meanwhile_changes_nothing(
    writer: Writer, meanwhile: Callable[[Act], None], end: str
) -> None:
    act, status, code = ENDS[end]
    file = succeed(writer.direct.upload(b"first"), 201)
    meanwhile(lambda: act(writer))
    with leaving_nothing(writer.front):
        refuse(writer.direct.replace(file, b"late"), status, code)


USER_ENDS: dict[str, tuple[Callable[[Writer, Person], object], int, str]] = {
    "key": (lambda w, person: w.revoke_keys(person), 401, "invalid_token"),
    "user": (lambda w, person: w.change(disable_user, user_id=person.user_id), 401, "invalid_token"),
    "membership": (lambda w, person: w.change_member(remove_member, person), 401, "invalid_token"),
    "role": (
        lambda w, person: w.change_member(change_member_role, person, role=Role.MEMBER),
        403,
        "permission_denied",
    ),
    "organization": (lambda w, _: ENDS["organization"][0](w), 403, "organization_suspended"),
}


@pytest.mark.parametrize("end", USER_ENDS)
def test_replace_of_a_user_revoked_meanwhile_changes_nothing(
    writer: Writer, meanwhile: Callable[[Act], None], end: str
) -> None:
    act, status, code = USER_ENDS[end]
    person = writer.front.identity.person(writer.organization_id, Role.WORKSPACE_ADMIN)
    file = succeed(writer.direct.upload(b"first"), 201)
    meanwhile(lambda: act(writer, person))
    user = Asker(front=writer.front, headers={"Authorization": person.authorization})
    with leaving_nothing(writer.front):
        refuse(user.replace(file, b"late"), status, code)


@pytest.mark.parametrize("end", ["identity", "distribution"])
def test_an_attributed_upload_ends_with_whom_it_is_for(
    writer: Writer, meanwhile: Callable[[Act], None], end: str
) -> None:
    def act() -> None:
        if end == "identity":
            writer.change(disable_identity, identity_id=writer.principal_id)
        else:
            writer.change(disable_distribution, distribution_id=writer.distribution_id)

    meanwhile(act)
    with leaving_nothing(writer.front):
        refuse(writer.attributed.upload(b"late"), 401, "attribution_invalid")


@pytest.mark.parametrize("meanwhile", ["after the last byte"], indirect=True)
def test_replay_to_a_revoked_caller_is_refused(writer: Writer, meanwhile: Callable[[Act], None]) -> None:
    operation = "6f1c1b8e-4b33-4d3b-9d5b-0f1f3a1f7c11"
    succeed(writer.direct.upload(b"first", operationId=operation), 201)
    meanwhile(lambda: ENDS["deployment"][0](writer))
    refuse(writer.direct.upload(b"first", operationId=operation), 401, "invalid_token")


def test_replace_that_waited_is_checked_against_the_rows_after_the_wait(
    writer: Writer,
) -> None:
    file = succeed(writer.direct.upload(b"first"), 201)
    database = writer.front.services.database
    with leaving_nothing(writer.front), ThreadPoolExecutor(1) as threads:
        with database.transaction() as session:
            session.execute(text("SELECT FROM files WHERE id = :id FOR UPDATE"), {"id": file["id"]})
            late = threads.submit(writer.direct.replace, file, b"late")
            wait_until(lambda: run_sql(writer.front, WAITING_FOR_LOCK), "a replace that waits")
            writer.change(disable_deployment, deployment_id=writer.created.deployment.id)
        refuse(late.result(), 401, "invalid_token")
