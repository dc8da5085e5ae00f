"""The OAuth endpoints, for SDKs of deployments and for anonymous clients."""

import base64
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet
from werkzeug.test import TestResponse

from deploy.embedded.valkey import EmbeddedValkey
from shared.identity.access.authorization import OPERATOR
from shared.identity.audit import list_audit_events
from shared.identity.credentials import client_credentials
from shared.identity.directory import deployments, identities, organizations, versions
from shared.identity.directory.deployments import CreatedDeployment
from shared.identity.secrets import Prefix, issue
from shared.identity.tokens.access_tokens import verify_access_token
from tests.support.web.web_process import BASE_URL, Front, open_front

GRANT = {"grant_type": "client_credentials"}
OTHER_SECRET = issue(Prefix.CLIENT_SECRET).value


@pytest.fixture
def created(front: Front) -> CreatedDeployment:
    return front.identity.deployment(front.identity.organization().id)


def posted(created: CreatedDeployment) -> dict[str, str]:
    return {
        "client_id": str(created.deployment.client_id),
        "client_secret": created.credential.secret.value,
    }


def basic(client_id: object, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode()


def by_basic(created: CreatedDeployment) -> str:
    return basic(created.deployment.client_id, created.credential.secret.value)


def ask_token(front: Front, created: CreatedDeployment, **more: str) -> TestResponse:
    return front.post("/oauth/token", data={**GRANT, **posted(created), **more})


def token(front: Front, created: CreatedDeployment, **more: str) -> str:
    value: str = ask_token(front, created, **more).get_json()["access_token"]
    return value


def assert_refused(answer: TestResponse, status: int, error: str) -> None:
    assert (answer.status_code, answer.get_json()["error"]) == (status, error), answer.text
    assert set(answer.get_json()) == {"error", "error_description"}
    description = answer.get_json()["error_description"]
    assert description.isascii()
    # RFC 6749 5.2 allows neither in `error_description`.
    assert '"' not in description
    assert answer.content_type == "application/json"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers.get("WWW-Authenticate", "").startswith("Basic ") == (status == 401)


def test_a_secret_in_the_form_is_exchanged_for_a_token_that_the_service_accepts(
    front: Front, created: CreatedDeployment
) -> None:
    answer = ask_token(front, created)
    assert answer.status_code == 200
    assert answer.get_json() == {
        "access_token": answer.get_json()["access_token"],
        "token_type": "Bearer",
        "expires_in": 900,
        "scope": "FileCreate FileRead FileUpdate TaskRead model.execute",
    }
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Pragma"] == "no-cache"
    files = front.get("/files", f"Bearer {answer.get_json()['access_token']}")
    assert files.get_json() == {"files": [], "nextCursor": None}


def test_a_secret_by_basic_is_exchanged_too(front: Front, created: CreatedDeployment) -> None:
    assert front.post("/oauth/token", by_basic(created), data=GRANT).status_code == 200


def test_basic_credentials_may_be_percent_encoded(front: Front, created: CreatedDeployment) -> None:
    # RFC 6749 2.3.1 has clients encode both parts, and a strict one encodes every character.
    encoded = "".join(f"%{ord(character):02X}" for character in created.credential.secret.value)
    answer = front.post("/oauth/token", basic(created.deployment.client_id, encoded), data=GRANT)
    assert answer.status_code == 200


def test_the_same_client_id_may_stand_in_the_form_beside_basic(
    front: Front, created: CreatedDeployment
) -> None:
    form = {**GRANT, "client_id": str(created.deployment.client_id)}
    assert front.post("/oauth/token", by_basic(created), data=form).status_code == 200


def test_unknown_and_empty_parameters_are_ignored(front: Front, created: CreatedDeployment) -> None:
    # `audience` is a parameter of the exchange (RFC 8693), so it is unknown to this grant.
    form = {**GRANT, "client_secret": "", "scope": "", "audience": "anything"}
    answer = front.post("/oauth/token", by_basic(created), data=form)
    assert answer.get_json()["scope"] == "FileCreate FileRead FileUpdate TaskRead model.execute"


def test_a_scope_narrows_the_token(front: Front, created: CreatedDeployment) -> None:
    narrow = ask_token(front, created, scope="model.execute")
    assert narrow.get_json()["scope"] == "model.execute"
    files = front.get("/files", f"Bearer {narrow.get_json()['access_token']}")
    assert files.status_code == 403


@pytest.mark.parametrize(
    "scope", ["FileDelete", "FileRead FileDelete", "unknown", "FileRead  FileCreate", "*"]
)
def test_a_scope_beyond_what_the_daemon_may_do_is_refused(
    front: Front, created: CreatedDeployment, scope: str
) -> None:
    assert_refused(ask_token(front, created, scope=scope), 400, "invalid_scope")


def test_the_resource_can_only_be_this_service(front: Front, created: CreatedDeployment) -> None:
    assert ask_token(front, created, resource=BASE_URL).status_code == 200
    assert_refused(ask_token(front, created, resource="https://elsewhere"), 400, "invalid_target")


MALFORMED: dict[str, dict[str, Any]] = {
    "no grant type": {"data": {}},
    "a parameter twice": {"data": "grant_type=client_credentials&grant_type=client_credentials"},
    "a parameter twice, once empty": {"data": "grant_type=client_credentials&scope=&scope=FileRead"},
    "a query": {"data": GRANT, "query_string": "grant_type=client_credentials"},
    "JSON": {"json": GRANT},
    "no content type": {"data": b"grant_type=client_credentials", "content_type": ""},
    "bytes that are not UTF-8": {"data": b"grant_type=client_credentials&scope=%ff"},
    "too many parameters": {"data": "&".join(f"p{number}=1" for number in range(40))},
}


@pytest.mark.parametrize("form", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_request_is_an_invalid_request(
    front: Front, created: CreatedDeployment, form: dict[str, Any]
) -> None:
    options = {"content_type": "application/x-www-form-urlencoded", **form}
    if "json" in form:
        del options["content_type"]
    assert_refused(front.post("/oauth/token", by_basic(created), **options), 400, "invalid_request")


def test_a_form_larger_than_any_token_is_refused(front: Front, created: CreatedDeployment) -> None:
    answer = ask_token(front, created, scope="x" * 40_000)
    assert_refused(answer, 413, "invalid_request")


def test_a_client_authenticates_in_one_way_only(front: Front, created: CreatedDeployment) -> None:
    both = front.post("/oauth/token", by_basic(created), data={**GRANT, **posted(created)})
    assert_refused(both, 400, "invalid_request")
    two = front.post("/oauth/token", by_basic(created), data={**GRANT, "client_id": str(uuid4())})
    assert_refused(two, 400, "invalid_request")


@pytest.mark.parametrize(
    "grant_type", ["password", "refresh_token", "authorization_code", "Client_Credentials"]
)
def test_another_grant_type_is_not_supported(
    front: Front, created: CreatedDeployment, grant_type: str
) -> None:
    assert_refused(ask_token(front, created, grant_type=grant_type), 400, "unsupported_grant_type")


UNKNOWN_CLIENTS = {
    "none": "",
    "another scheme": "Bearer {secret}",
    "no base64": "Basic ***",
    "no colon": "encoded {client}",
    "no secret": "encoded {client}:",
    "a wrong secret": "encoded {client}:{other}",
    "a mistyped secret": "encoded {client}:{secret}!",
    "another client": "encoded 6f9619ff-8b86-4d01-b42d-00cf4fc964ff:{secret}",
    "no client": "encoded :{secret}",
}


@pytest.mark.parametrize("template", UNKNOWN_CLIENTS.values(), ids=UNKNOWN_CLIENTS.keys())
@pytest.mark.parametrize("path", ["/oauth/token", "/oauth/revoke", "/oauth/introspect"])
def test_an_unknown_client_is_refused_in_one_way(
    front: Front, created: CreatedDeployment, path: str, template: str
) -> None:
    client, secret = created.deployment.client_id, created.credential.secret.value
    authorization = template.format(client=client, secret=secret, other=OTHER_SECRET)
    if authorization.startswith("encoded "):
        authorization = "Basic " + base64.b64encode(authorization.removeprefix("encoded ").encode()).decode()
    answer = front.post(path, authorization or None, data={**GRANT, "token": "x"})
    assert_refused(answer, 401, "invalid_client")


def test_the_secret_of_another_deployment_is_refused(front: Front, created: CreatedDeployment) -> None:
    other = front.identity.deployment(created.deployment.organization_id)
    authorization = basic(created.deployment.client_id, other.credential.secret.value)
    assert_refused(front.post("/oauth/token", authorization, data=GRANT), 401, "invalid_client")


ENDED: dict[str, Callable[..., object]] = {
    "revoked secret": lambda session, created: client_credentials.revoke_client_credential(
        session, actor=OPERATOR, credential_id=created.credential.credential.id
    ),
    "disabled deployment": lambda session, created: deployments.disable_deployment(
        session, actor=OPERATOR, deployment_id=created.deployment.id
    ),
    "disabled daemon": lambda session, created: identities.disable_identity(
        session, actor=OPERATOR, identity_id=created.deployment.daemon_identity_id
    ),
}
HALTED: dict[str, Callable[..., object]] = {
    "revoked version": lambda session, created: versions.revoke_version(
        session, actor=OPERATOR, version_id=created.version.id
    ),
    "suspended organization": lambda session, created: organizations.suspend_organization(
        session, actor=OPERATOR, organization_id=created.deployment.organization_id
    ),
}


@pytest.mark.parametrize("end", ENDED.values(), ids=ENDED.keys())
def test_what_ends_a_client_ends_its_tokens_at_once(
    front: Front, created: CreatedDeployment, end: Callable[..., object]
) -> None:
    old = token(front, created)
    with front.services.database.transaction() as session:
        end(session, created)
    assert_refused(ask_token(front, created), 401, "invalid_client")
    assert front.get("/files", f"Bearer {old}").status_code == 401


@pytest.mark.parametrize(("halted", "status"), [("revoked version", 401), ("suspended organization", 403)])
def test_a_client_that_may_not_act_now_gets_no_token(
    front: Front, created: CreatedDeployment, halted: str, status: int
) -> None:
    old = token(front, created)
    with front.services.database.transaction() as session:
        HALTED[halted](session, created)
    assert_refused(ask_token(front, created), 400, "unauthorized_client")
    assert front.get("/files", f"Bearer {old}").status_code == status


def test_a_secret_can_be_replaced_without_a_failed_call(front: Front, created: CreatedDeployment) -> None:
    with front.services.database.transaction() as session:
        second = client_credentials.issue_client_credential(
            session, actor=OPERATOR, deployment_id=created.deployment.id
        )
    client_id = created.deployment.client_id
    assert front.post("/oauth/token", basic(client_id, second.secret.value), data=GRANT).status_code == 200
    assert ask_token(front, created).status_code == 200
    with front.services.database.transaction() as session:
        ENDED["revoked secret"](session, created)
    assert front.post("/oauth/token", basic(client_id, second.secret.value), data=GRANT).status_code == 200


def test_a_revoked_token_is_worthless_and_revoking_it_again_is_no_error(
    front: Front, created: CreatedDeployment
) -> None:
    value = token(front, created)
    for _ in range(2):
        answer = front.post("/oauth/revoke", by_basic(created), data={"token": value})
        assert (answer.status_code, answer.data) == (200, b"")
        assert answer.headers["Cache-Control"] == "no-store"
    assert front.get("/files", f"Bearer {value}").get_json()["code"] == "invalid_token"


def test_a_revoked_token_is_recorded_once(front: Front, created: CreatedDeployment) -> None:
    value, of_other = (
        token(front, created),
        token(front, front.identity.deployment(front.identity.organization().id)),
    )
    for sent in (value, value, of_other, "nonsense"):
        front.post("/oauth/revoke", by_basic(created), data={"token": sent}, headers={"X-Request-Id": "r-1"})
    with front.services.database.transaction() as session:
        events = list_audit_events(
            session, actor=OPERATOR, organization_id=created.deployment.organization_id
        ).items
    (event,) = [at for at in events if at.action == "access_token.revoked"]
    claims = verify_access_token(front.services.signing_keys, front.settings, value)
    assert event.resource_id == claims.token_id
    assert event.actor_id == created.deployment.daemon_identity_id
    assert event.credential_id == created.credential.credential.id
    assert (event.request_id, event.client_address) == ("r-1", "127.0.0.1")


@pytest.mark.parametrize("garbage", ["nonsense", "a.b.c", "x" * 5000, "svk_" + "0" * 49])
def test_revoking_what_is_no_token_is_no_error(
    front: Front, created: CreatedDeployment, garbage: str
) -> None:
    answer = front.post("/oauth/revoke", by_basic(created), data={"token": garbage})
    assert answer.status_code == 200


def test_a_client_cannot_revoke_the_token_of_another(front: Front, created: CreatedDeployment) -> None:
    other = front.identity.deployment(created.deployment.organization_id)
    value = token(front, other)
    assert front.post("/oauth/revoke", by_basic(created), data={"token": value}).status_code == 200
    assert front.get("/files", f"Bearer {value}").status_code == 200


@pytest.mark.parametrize("path", ["/oauth/revoke", "/oauth/introspect"])
def test_a_token_has_to_be_named(front: Front, created: CreatedDeployment, path: str) -> None:
    assert_refused(front.post(path, by_basic(created), data={}), 400, "invalid_request")


def test_a_client_learns_about_its_own_token(front: Front, created: CreatedDeployment) -> None:
    answer = front.post(
        "/oauth/introspect",
        by_basic(created),
        data={"token": token(front, created), "token_type_hint": "access_token"},
    )
    described = answer.get_json()
    assert described["active"] is True
    assert described["client_id"] == described["sub"] == str(created.deployment.client_id)
    assert described["iss"] == described["aud"] == BASE_URL
    assert described["deployment_id"] == str(created.deployment.id)
    assert described["exp"] - described["iat"] == 900
    assert answer.headers["Cache-Control"] == "no-store"


def test_of_any_other_token_only_its_inactivity_is_told(front: Front, created: CreatedDeployment) -> None:
    other = front.identity.deployment(created.deployment.organization_id)
    revoked = token(front, created)
    front.post("/oauth/revoke", by_basic(created), data={"token": revoked})
    person = front.identity.person(created.deployment.organization_id)
    for value in (token(front, other), revoked, person.api_key, "nonsense"):
        answer = front.post("/oauth/introspect", by_basic(created), data={"token": value})
        assert (answer.status_code, answer.get_json()) == (200, {"active": False})


def test_the_published_keys_verify_a_token_and_hold_nothing_private(
    front: Front, created: CreatedDeployment
) -> None:
    answer = front.get("/.well-known/jwks.json")
    keys = answer.get_json()
    assert all(set(key) == {"kty", "crv", "x", "y", "kid", "use", "alg"} for key in keys["keys"])
    assert answer.headers["Cache-Control"] == "public, max-age=300"
    decoded = jwt.decode(token(front, created), KeySet.import_key_set(keys), algorithms=["ES256"])
    assert decoded.header["typ"] == "at+jwt"
    assert decoded.claims["iss"] == BASE_URL


def test_the_server_describes_its_endpoints(front: Front) -> None:
    metadata = front.get("/.well-known/oauth-authorization-server").get_json()
    assert metadata["issuer"] == BASE_URL
    assert metadata["grant_types_supported"][0] == "client_credentials"
    for name in ("token_endpoint", "revocation_endpoint", "introspection_endpoint"):
        path = metadata[name].removeprefix(BASE_URL)
        assert_refused(front.post(path, data=GRANT), 401, "invalid_client")
        methods = metadata[f"{name}_auth_methods_supported"]
        assert methods[:2] == ["client_secret_basic", "client_secret_post"]
    assert front.get(metadata["jwks_uri"].removeprefix(BASE_URL)).status_code == 200


def test_the_resource_names_its_authorization_server(front: Front) -> None:
    metadata = front.get("/.well-known/oauth-protected-resource").get_json()
    assert metadata["resource"] == BASE_URL
    assert metadata["authorization_servers"] == [BASE_URL]


def test_a_token_is_not_fetched_by_get(front: Front) -> None:
    answer = front.get("/oauth/token")
    assert answer.status_code == 405
    assert answer.headers["Allow"] == "POST"


def test_no_secret_and_no_token_is_logged(
    front: Front, created: CreatedDeployment, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        value = token(front, created)
        front.post("/oauth/introspect", by_basic(created), data={"token": value})
        front.post("/oauth/token", basic(created.deployment.client_id, OTHER_SECRET), data=GRANT)
        front.post("/oauth/token", by_basic(created), data=f"grant_type=x&token={value}&token={value}")
    written = "\n".join(str(vars(record)) for record in caplog.records)
    for secret in (value, created.credential.secret.value, OTHER_SECRET, by_basic(created)):
        assert secret not in written


def test_guessing_secrets_is_slowed_down_and_the_right_one_still_works(
    database_url: str, valkey_server: EmbeddedValkey, tmp_path: Path
) -> None:
    with open_front(database_url, valkey_server.url, tmp_path, failed_logins_per_minute=3) as front:
        created = front.identity.deployment(front.identity.organization().id)
        address = {"REMOTE_ADDR": "192.0.2.7"}
        wrong = basic(created.deployment.client_id, OTHER_SECRET)
        answers = [front.post("/oauth/token", wrong, data=GRANT, environ_overrides=address) for _ in range(5)]
        assert [answer.status_code for answer in answers] == [401, 401, 401, 429, 429]
        assert_refused(answers[-1], 429, "temporarily_unavailable")
        assert int(answers[-1].headers["Retry-After"]) > 0
        assert ask_token(front, created).status_code == 200


def test_a_client_may_ask_so_often_in_a_minute(
    database_url: str, valkey_server: EmbeddedValkey, tmp_path: Path
) -> None:
    with open_front(database_url, valkey_server.url, tmp_path, rate_limit_per_minute=2) as front:
        created = front.identity.deployment(front.identity.organization().id)
        answers = [ask_token(front, created) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[0].headers["RateLimit-Policy"] == '"default";q=2;w=60'


def test_without_a_database_a_client_is_asked_to_come_back(
    valkey_server: EmbeddedValkey, tmp_path: Path
) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:9/nothing"
    with open_front(nowhere, valkey_server.url, tmp_path) as front:
        form = {**GRANT, "client_id": str(uuid4()), "client_secret": OTHER_SECRET}
        answer = front.post("/oauth/token", data=form)
    assert_refused(answer, 503, "temporarily_unavailable")
    assert answer.headers["Retry-After"] == "1"
