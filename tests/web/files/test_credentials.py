"""Credentials that are invalid, of others, forged, expired or in the wrong place.

Specified in docs/specification/identity.md#credentials.
"""

from dataclasses import replace
from typing import Any

import pytest
from werkzeug.datastructures import Headers
from werkzeug.test import TestResponse

from shared.config.settings import Settings
from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.deployments import disable_deployment
from shared.identity.directory.identities import disable_identity
from shared.identity.directory.organizations import suspend_organization
from shared.identity.secrets import Prefix, issue
from tests.support.data.identity import IdentityFactory
from tests.support.files.file_requests import Asker, leaving_nothing, refuse, succeed
from tests.support.web.web_process import Front
from tests.web.files.conftest import ATTRIBUTION, Cast, agent_of, attribution_for, on_behalf_of

SELECTOR = "Service-Principal-Selector"


@pytest.fixture(scope="module")
def file(cast: Cast) -> Any:
    return succeed(cast.agent.upload(b"first"), 201)


def with_headers(asker: Asker, **headers: str) -> Asker:
    return replace(asker, headers={**asker.headers, **headers})


def in_the_past(front: Front) -> Settings:
    """Settings with which all signed tokens expired a minute ago."""
    return front.settings.model_copy(update={"access_token_seconds": -60, "attribution_seconds": -60})


def swap(token: str, part: int) -> str:
    """Damage one part of a compact JWS by one character."""
    parts = token.split(".")
    middle = len(parts[part]) // 2
    other = "A" if parts[part][middle] != "A" else "B"
    parts[part] = parts[part][:middle] + other + parts[part][middle + 1 :]
    return ".".join(parts)


def test_without_credentials_every_operation_asks_for_them(cast: Cast, front: Front, file: Any) -> None:
    anonymous = cast.anonymous
    with leaving_nothing(front):
        for answer in (
            anonymous.upload(),
            anonymous.replace(file),
            anonymous.list(),
            anonymous.metadata(file),
            anonymous.content(file),
            anonymous.versions(file),
            anonymous.grant(file),
            anonymous.renew(file, None),
            anonymous.delete(file),
            anonymous.references(file),
            anonymous.refer(file),
            anonymous.release(file),
        ):
            refuse(answer, 401, "authentication_required")
            assert answer.headers["WWW-Authenticate"] == 'Bearer realm="quartermaster"'


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz", "Token x", "svk_x"],
)
def test_other_authorization_schemes_are_no_credential(cast: Cast, authorization: str) -> None:
    refuse(with_headers(cast.anonymous, Authorization=authorization).list(), 401, "authentication_required")


def test_a_wrong_credential_is_refused_without_a_word_why(cast: Cast, front: Front) -> None:
    token = cast.agent.headers["Authorization"].removeprefix("Bearer ")
    attribution = cast.for_p1.headers[ATTRIBUTION]
    wrong = [
        "x",
        "x" * 100_000,
        issue(Prefix.API_KEY).value,
        issue(Prefix.GRANT).value,
        issue(Prefix.DISTRIBUTION_TOKEN).value,
        cast.agent_deployment.credential.secret.value,
        str(cast.agent_deployment.deployment.client_id),
        attribution,
        swap(token, 0),
        swap(token, 1),
        swap(token, 2),
        token + "A",
        token.rpartition(".")[0] + ".",
        ".".join(reversed(token.split("."))),
        f"{token}, {token}",
    ]
    with leaving_nothing(front):
        answers = [with_headers(cast.anonymous, Authorization=f"Bearer {value}").upload() for value in wrong]
    bodies = [{**refuse(answer, 401, "invalid_token"), "requestId": ""} for answer in answers]
    assert all(body == bodies[0] for body in bodies)
    for answer, value in zip(answers, wrong, strict=True):
        assert answer.headers["WWW-Authenticate"] == 'Bearer realm="quartermaster", error="invalid_token"'
        assert len(value) < 10 or value not in answer.text


def test_token_is_refused_after_its_identity_ends(cast: Cast, front: Front) -> None:
    database = front.services.database
    created, asker = cast.newcomer()
    succeed(asker.list())
    with database.transaction() as session:
        disable_deployment(session, actor=OPERATOR, deployment_id=created.deployment.id)
    refuse(asker.list(), 401, "invalid_token")
    created, asker = cast.newcomer()
    with database.transaction() as session:
        disable_identity(session, actor=OPERATOR, identity_id=created.deployment.daemon_identity_id)
    refuse(asker.list(), 401, "invalid_token")


def test_an_expired_token_is_refused(cast: Cast, front: Front) -> None:
    past = IdentityFactory(front.services.database, in_the_past(front))
    worn = past.authorization(cast.agent_deployment)
    refuse(with_headers(cast.anonymous, Authorization=worn).list(), 401, "invalid_token")


def test_suspended_organization_refuses_every_caller(front: Front) -> None:
    organization = front.identity.organization("Suspended")
    asker = agent_of(front, front.identity.deployment(organization.id))
    file = succeed(asker.upload(), 201)
    link = succeed(asker.grant(file), 201)["url"]
    with front.services.database.transaction() as session:
        suspend_organization(session, actor=OPERATOR, organization_id=organization.id)
    refuse(asker.list(), 403, "organization_suspended")
    refuse(asker.upload(), 403, "organization_suspended")
    refuse(asker.follow(link), 403, "organization_suspended")


def test_narrow_token_has_only_its_scope(cast: Cast, front: Front, file: Any) -> None:
    reader = agent_of(front, cast.agent_deployment, "FileRead")
    assert reader.content(file).data == b"first"
    with leaving_nothing(front):
        refuse(reader.upload(), 403, "permission_denied")
        refuse(reader.replace(file), 403, "permission_denied")
        refuse(reader.grant(file), 403, "permission_denied")
        refuse(reader.renew(file, None), 403, "permission_denied")
    creator = agent_of(front, cast.agent_deployment, "FileCreate")
    succeed(creator.upload(), 201)
    refuse(creator.metadata(file), 403, "permission_denied")
    refuse(creator.list(), 403, "permission_denied")


def test_an_empty_attribution_is_refused(cast: Cast, front: Front) -> None:
    with leaving_nothing(front):
        for value in ("", " ", "\t"):
            refuse(with_headers(cast.agent, **{ATTRIBUTION: value}).upload(), 400, "attribution_empty")


def test_a_repeated_attribution_is_refused(cast: Cast, front: Front) -> None:
    value = cast.for_p1.headers[ATTRIBUTION]
    with leaving_nothing(front):
        joined = with_headers(cast.agent, **{ATTRIBUTION: f"{value}, {value}"}).upload()
        refuse(joined, 400, "attribution_repeated")
    headers = Headers(list(cast.agent.headers.items()))
    headers.add(ATTRIBUTION, value)
    headers.add(ATTRIBUTION, value)
    twice: TestResponse = front.app.test_client().get("/files", headers=headers)
    refuse(twice, 400, "attribution_repeated")


def test_an_attribution_of_another_deployment_is_refused(cast: Cast, front: Front, file: Any) -> None:
    replayed = with_headers(cast.colleague, **{ATTRIBUTION: cast.for_p1.headers[ATTRIBUTION]})
    with leaving_nothing(front):
        refuse(replayed.upload(), 403, "attribution_mismatch")
        refuse(replayed.list(), 403, "attribution_mismatch")
        refuse(replayed.metadata(file), 403, "attribution_mismatch")


def test_a_forged_attribution_is_refused(cast: Cast, front: Front) -> None:
    value = cast.for_p1.headers[ATTRIBUTION]
    token = cast.agent.headers["Authorization"].removeprefix("Bearer ")
    forged = [
        "x",
        "a.b.c",
        swap(value, 0),
        swap(value, 1),
        swap(value, 2),
        value.rpartition(".")[0] + ".",
        token,
    ]
    with leaving_nothing(front):
        for wrong in forged:
            answer = with_headers(cast.agent, **{ATTRIBUTION: wrong}).upload()
            refuse(answer, 401, "attribution_invalid")
            assert wrong not in answer.text or len(wrong) < 10


def test_an_expired_attribution_is_refused(cast: Cast, front: Front) -> None:
    assert cast.for_p1.owner_id is not None
    past = replace(front, settings=in_the_past(front))
    worn = attribution_for(past, cast.agent_deployment, cast.for_p1.owner_id, payer_id=cast.acme)
    refuse(with_headers(cast.agent, **{ATTRIBUTION: worn}).upload(), 401, "attribution_invalid")


def test_an_attribution_dies_with_its_principal(cast: Cast, front: Front) -> None:
    principal = front.identity.principal(cast.acme, "leaving")
    asker = on_behalf_of(front, cast.agent_deployment, principal.id, payer_id=cast.acme)
    file = succeed(asker.upload(), 201)
    with front.services.database.transaction() as session:
        disable_identity(session, actor=OPERATOR, identity_id=principal.id)
    refuse(asker.metadata(file), 401, "attribution_invalid")


def test_attribution_of_a_user_is_refused(cast: Cast, file: Any) -> None:
    for asker in (cast.owner, cast.member):
        attributed = with_headers(asker, **{ATTRIBUTION: cast.for_p1.headers[ATTRIBUTION]})
        refuse(attributed.metadata(file), 403, "attribution_mismatch")


def test_principal_selector_is_refused_for_every_value(cast: Cast, front: Front, file: Any) -> None:
    for asker in (cast.agent, cast.for_p1, cast.owner):
        for value in (str(asker.owner_id), "", "x"):
            with leaving_nothing(front):
                selecting = with_headers(asker, **{SELECTOR: value})
                refuse(selecting.metadata(file), 400, "principal_selector_not_allowed")
                refuse(selecting.upload(), 400, "principal_selector_not_allowed")


def test_a_reported_caller_selects_nothing(cast: Cast, front: Front, file: Any) -> None:
    """A request for the file that names its owner in all ways but the attribution."""
    claiming = with_headers(
        cast.colleague,
        **{
            "X-User-Id": str(cast.agent.owner_id),
            "Service-Reported-Caller": str(cast.agent.owner_id),
        },
    )
    refuse(claiming.metadata(file), 404, "file_not_found")
