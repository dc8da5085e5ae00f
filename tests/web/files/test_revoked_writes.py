"""Whoever loses the right to write while their content is being received stores nothing."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from shared.identity.access_tokens import revoke_token, verify_access_token
from shared.identity.authorization import OPERATOR
from shared.identity.client_credentials import revoke_client_credential
from shared.identity.deployments import CreatedDeployment, disable_deployment
from shared.identity.distributions import disable_distribution
from shared.identity.identities import disable_identity
from shared.identity.organizations import suspend_organization
from shared.identity.versions import revoke_version
from tests.support.front import Front
from tests.web.files.asking import Asker, leaving_nothing, refuse, succeed
from tests.web.files.conftest import ATTRIBUTION, agent_of, demote
from web.http import multipart

Act = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Writer:
    """A deployment that writes for a receiving identity, all of it new."""

    front: Front
    created: CreatedDeployment
    principal_id: Any
    distribution_id: Any
    direct: Asker
    attributed: Asker

    def change(self, act: Callable[..., object], **named: Any) -> None:
        with self.front.services.database.transaction() as session:
            act(session, by=OPERATOR, **named)

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


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Act], None]:
    """Let something happen when the content has been received."""
    receive = multipart.receive_file_part

    def arrange(act: Act) -> None:
        def receive_and_act(*arguments: Any, **named: Any) -> Any:
            part = receive(*arguments, **named)
            act()
            return part

        monkeypatch.setattr("web.files.writes.receive_file_part", receive_and_act)

    return arrange


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
def test_an_upload_whose_caller_was_revoked_meanwhile_stores_nothing(
    writer: Writer, meanwhile: Callable[[Act], None], end: str
) -> None:
    act, status, code = ENDS[end]
    meanwhile(lambda: act(writer))
    with leaving_nothing(writer.front):
        refuse(writer.direct.upload(b"late"), status, code)


@pytest.mark.parametrize("end", ENDS)
def test_a_replace_whose_caller_was_revoked_meanwhile_changes_nothing(
    writer: Writer, meanwhile: Callable[[Act], None], end: str
) -> None:
    act, status, code = ENDS[end]
    file = succeed(writer.direct.upload(b"first"), 201)
    meanwhile(lambda: act(writer))
    with leaving_nothing(writer.front):
        refuse(writer.direct.replace(file, b"late"), status, code)


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


def test_what_was_stored_before_is_not_told_again(writer: Writer, meanwhile: Callable[[Act], None]) -> None:
    operation = "6f1c1b8e-4b33-4d3b-9d5b-0f1f3a1f7c11"
    succeed(writer.direct.upload(b"first", operationId=operation), 201)
    meanwhile(lambda: ENDS["deployment"][0](writer))
    refuse(writer.direct.upload(b"first", operationId=operation), 401, "invalid_token")
