"""Token exchange for GitHub deployments (docs/specification/identity.md#workflows), with a local issuer."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from werkzeug.test import TestResponse

from deploy.embedded.valkey import EmbeddedValkey
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.directory.deployments import DeploymentKind, create_deployment
from shared.identity.tokens.jwks_client import IssuerKeys
from tests.support.data.identity import make_settings
from tests.support.data.media_sources import MediaSource, content
from tests.support.web.web_process import BASE_URL, Front, open_front

ISSUER = "https://token.actions.example.com/acme"
OTHER_ISSUER = "https://git.example.org/_services/token"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
KEY = RSAKey.generate_key(2048)
OTHER_KEY = RSAKey.generate_key(2048)
Claims = dict[str, Any]


def key_set(*keys: tuple[str, RSAKey]) -> Claims:
    return {
        "keys": [
            {**key.as_dict(private=False), "kid": kid, "alg": "RS256", "use": "sig"} for kid, key in keys
        ]
    }


def claims(**changed: Any) -> Claims:
    now = int(time.time())
    said = {
        "iss": ISSUER,
        "aud": BASE_URL,
        "sub": "repo:acme/reporter:anything",
        "jti": uuid4().hex,
        "iat": now,
        "nbf": now,
        "exp": now + 300,
        "repository": "acme/reporter",
        "repository_id": "1001",
        "repository_owner_id": "77",
        "ref": "refs/heads/main",
        "sha": "0" * 40,
        "event_name": "push",
        "environment": "production",
        "something_new": {"of": "GitHub's"},
    }
    return {name: value for name, value in {**said, **changed}.items() if value is not None}


def signed(said: Claims, *, kid: str = "k1", key: RSAKey = KEY, **header: Any) -> str:
    return jwt.encode({"alg": "RS256", "typ": "JWT", "kid": kid, **header}, said, key, ["RS256"])


@dataclass(frozen=True, kw_only=True)
class Workflows:
    """A GitHub deployment and its administrator."""

    front: Front
    deployment_id: str
    client_id: str
    daemon_id: str
    headers: dict[str, str] = field(repr=False)

    def set(self, **repository: Any) -> TestResponse:
        body = {"repository": "acme/reporter", **repository}
        return self.administer("PUT", json=body)

    def administer(self, method: str, **options: Any) -> TestResponse:
        path = f"/admin/deployments/{self.deployment_id}/repository"
        return self.front.client.open(path, method=method, headers=self.headers, buffered=True, **options)

    def exchange(self, token: str, **changed: Any) -> TestResponse:
        form = {
            "grant_type": TOKEN_EXCHANGE,
            "client_id": self.client_id,
            "subject_token": token,
            "subject_token_type": ID_TOKEN,
            **changed,
        }
        return self.front.client.post("/oauth/token", data=form)

    def accept(self, **said: Any) -> str:
        answer = self.exchange(signed(claims(**said)))
        assert answer.status_code == 200, answer.text
        return str((answer.json or {})["access_token"])

    def refuse(self, token: str, code: str = "invalid_request", **changed: Any) -> None:
        answer = self.exchange(token, **changed)
        assert (answer.status_code, (answer.json or {})["error"]) == (400, code), answer.text

    def works(self, token: str) -> bool:
        headers = {"Authorization": f"Bearer {token}"}
        return self.front.client.get("/files", headers=headers).status_code == 200


@pytest.fixture(scope="module")
def front(
    database_url: str, valkey_server: EmbeddedValkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Front]:
    directory = tmp_path_factory.mktemp("issuer")
    keys = directory / "keys.json"
    of_issuers = {ISSUER: key_set(("k1", KEY)), OTHER_ISSUER: key_set(("k1", OTHER_KEY))}
    keys.write_text(json.dumps(of_issuers))
    settings = {"github_issuers": (ISSUER, OTHER_ISSUER), "github_keys_file": keys}
    with open_front(database_url, valkey_server.url, directory, any_store=True, **settings) as front:
        yield front


@pytest.fixture
def workflows(front: Front) -> Workflows:
    return make_workflows(front)


def make_workflows(front: Front) -> Workflows:
    organization = front.identity.organization(f"Acme {uuid4().hex[:8]}").id
    with front.services.database.transaction() as session:
        made = create_deployment(
            session, actor=OPERATOR, organization_id=organization, kind=DeploymentKind.GITHUB, name="Reporter"
        ).deployment
    owner = front.identity.person(organization, Role.WORKSPACE_OWNER).authorization
    return Workflows(
        front=front,
        deployment_id=str(made.id),
        client_id=str(made.client_id),
        daemon_id=str(made.daemon_identity_id),
        headers={"Authorization": owner},
    )


def test_a_workflow_gets_an_access_token_without_a_secret(workflows: Workflows) -> None:
    assert workflows.set(ref="main", environment="Production").status_code == 200
    answer = workflows.exchange(signed(claims()), scope="FileCreate FileRead", audience=BASE_URL)
    assert answer.status_code == 200, answer.text
    body: Any = answer.json
    assert body["issued_token_type"] == "urn:ietf:params:oauth:token-type:access_token"
    assert (body["token_type"], body["scope"]) == ("Bearer", "FileCreate FileRead")
    assert answer.headers["Cache-Control"] == "no-store"
    assert workflows.works(body["access_token"])


def test_a_token_is_exchanged_once(workflows: Workflows) -> None:
    workflows.set()
    token = signed(claims())
    assert workflows.exchange(token).status_code == 200
    workflows.refuse(token)


@pytest.mark.parametrize(
    "changed",
    [
        {"aud": "https://other.example"},
        # GitHub's `aud` is a text. A list could name other services that may use the token too.
        {"aud": [BASE_URL]},
        {"aud": None},
        {"iss": "https://stranger.example"},
        # An issuer is compared exactly (OpenID Connect Discovery 4.3).
        {"iss": ISSUER + "/"},
        # Beyond the leeway of 30 seconds between clocks.
        {"exp": int(time.time()) - 31},
        {"iat": int(time.time()) + 3600, "exp": int(time.time()) + 7200},
        {"nbf": int(time.time()) + 3600},
        {"exp": str(int(time.time()) + 300)},
        {"jti": None},
        {"repository": "acme/other"},
        {"repository": "acme/reporter2"},
        {"repository_id": None},
        {"repository_owner_id": None},
        {"ref": "refs/heads/feature"},
        # `main` means a branch: a tag of this name may be pushed by others.
        {"ref": "refs/tags/main"},
        {"ref": "main"},
        {"ref": "refs/heads/Main"},
        {"environment": "staging"},
        {"environment": None},
        # It runs for pull requests of any user, with the ref of the base branch, so the ref does not reveal it.
        {"event_name": "pull_request_target"},
        {"event_name": None},
    ],
)
def test_a_token_that_says_something_else_is_refused(workflows: Workflows, changed: Claims) -> None:
    workflows.set(ref="main", environment="production")
    workflows.refuse(signed(claims(**changed)))


def test_an_environment_whose_name_folds_to_the_others_is_another(workflows: Workflows) -> None:
    """A user who may push a workflow can create environments of any name, without protection rules."""
    workflows.set(ref="main", environment="market")
    # U+212A, the Kelvin sign, is k in lower case in Unicode and not in ASCII.
    workflows.refuse(signed(claims(environment="mar\u212aet")))
    assert workflows.exchange(signed(claims(environment="Market"))).status_code == 200


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(lambda: signed(claims(), key=OTHER_KEY), id="another key"),
        pytest.param(lambda: signed(claims(), kid="k2"), id="unknown kid"),
        pytest.param(lambda: signed(claims(), jku="https://stranger.example/keys"), id="jku"),
        pytest.param(lambda: signed(claims()) + "x", id="changed"),
        pytest.param(lambda: "a.b.c", id="nonsense"),
        pytest.param(lambda: "x" * 9000, id="long"),
        pytest.param(
            lambda: jwt.encode({"alg": "HS256", "kid": "k1"}, claims(), OctKey.generate_key(256), ["HS256"]),
            id="a shared secret",
        ),
    ],
)
def test_a_token_that_the_issuer_did_not_sign_is_refused(
    workflows: Workflows, token: Callable[[], str]
) -> None:
    workflows.set()
    workflows.refuse(token())


def test_clocks_may_differ_by_half_a_minute(workflows: Workflows) -> None:
    workflows.set()
    now = int(time.time())
    workflows.accept(iat=now + 15, nbf=now + 15)
    workflows.accept(iat=now - 320, nbf=now - 320, exp=now - 5)


def test_the_first_token_pins_the_repository(workflows: Workflows) -> None:
    workflows.set()
    workflows.accept()
    pinned: Any = workflows.administer("GET").json
    assert (pinned["repositoryId"], pinned["repositoryOwnerId"]) == ("1001", "77")
    workflows.refuse(signed(claims(repository_id="1002")))
    workflows.refuse(signed(claims(repository_owner_id="78")))
    workflows.accept(repository="acme/renamed")
    assert (workflows.administer("GET").json or {})["repository"] == "acme/renamed"


def test_ids_that_were_entered_are_compared_at_once(workflows: Workflows) -> None:
    workflows.set(repositoryId="1", repositoryOwnerId="77")
    workflows.refuse(signed(claims()))
    workflows.set(repositoryId="1001", repositoryOwnerId="2")
    workflows.refuse(signed(claims()))
    workflows.set(repositoryId="1001", repositoryOwnerId="77")
    workflows.accept()


def test_without_a_ref_any_branch_or_tag_will_do_and_no_pull_request(workflows: Workflows) -> None:
    workflows.set()
    for ref in ("refs/heads/feature", "refs/tags/v1"):
        workflows.accept(ref=ref)
    workflows.refuse(signed(claims(ref="refs/pull/7/merge")))


def test_tokens_end_with_the_repository_that_they_were_given_for(workflows: Workflows) -> None:
    workflows.set()
    first = workflows.accept()
    workflows.set(ref="main")
    assert not workflows.works(first)
    second = workflows.accept()
    assert workflows.works(second)
    assert workflows.administer("DELETE").status_code == 204
    assert not workflows.works(second)
    assert workflows.administer("GET").status_code == 404
    workflows.refuse(signed(claims()))


def test_the_credential_of_workflows_is_no_client_secret(workflows: Workflows) -> None:
    path = f"/admin/deployments/{workflows.deployment_id}/client-credentials"
    before: Any = workflows.front.client.get(path, headers=workflows.headers).json
    workflows.set()
    workflows.set()
    assert workflows.front.client.get(path, headers=workflows.headers).json == before
    assert workflows.front.client.post(path, headers=workflows.headers, json={}).status_code == 201


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"subject_token_type": "urn:ietf:params:oauth:token-type:saml2"}, "invalid_request"),
        ({"subject_token": ""}, "invalid_request"),
        ({"client_secret": "svs_x"}, "invalid_request"),
        ({"client_id": ""}, "invalid_request"),
        ({"client_id": "nobody"}, "invalid_request"),
        ({"client_id": str(uuid4())}, "invalid_request"),
        ({"actor_token": "x"}, "invalid_request"),
        ({"requested_token_type": ID_TOKEN}, "invalid_request"),
        ({"audience": "https://other.example"}, "invalid_target"),
        ({"resource": "https://other.example"}, "invalid_target"),
        ({"scope": "FileDelete"}, "invalid_scope"),
    ],
)
def test_a_form_of_another_kind_is_refused(workflows: Workflows, changed: Claims, code: str) -> None:
    workflows.set()
    workflows.refuse(signed(claims()), code, **changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"repository": "reporter"},
        {"repository": "acme/re porter"},
        {"ref": ""},
        {"ref": "a b"},
        {"environment": ""},
        {"repositoryId": "x"},
        {"repositoryOwnerId": "-1"},
    ],
)
def test_a_repository_of_another_form_is_refused(workflows: Workflows, changed: Claims) -> None:
    assert workflows.set(**changed).status_code == 422


def test_a_remote_deployment_has_no_repository(front: Front, workflows: Workflows) -> None:
    organization = front.identity.organization("Elsewhere").id
    remote = front.identity.deployment(organization).deployment
    owner = front.identity.person(organization, Role.WORKSPACE_OWNER).authorization
    path = f"/admin/deployments/{remote.id}/repository"
    answer = front.client.put(path, headers={"Authorization": owner}, json={"repository": "a/b"})
    assert (answer.status_code, (answer.json or {})["code"]) == (409, "no_github_deployment")


def test_the_metadata_names_the_grant(front: Front) -> None:
    described: Any = front.get("/.well-known/oauth-authorization-server").json
    assert TOKEN_EXCHANGE in described["grant_types_supported"]
    assert "none" in described["token_endpoint_auth_methods_supported"]


def test_keys_are_found_by_discovery_and_read_again_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with MediaSource() as source:
        issuer = source.url + "/tenant"
        discovery = {"issuer": issuer, "jwks_uri": source.url + "/keys"}
        source.serve("/tenant/.well-known/openid-configuration", content(json.dumps(discovery).encode()))
        source.serve("/keys", content(json.dumps(key_set(("k1", KEY))).encode()))
        keys = IssuerKeys(issuer_settings(issuer))
        assert keys.find(issuer, "k1") is not None
        assert keys.find(issuer, "k2") is None
        assert keys.find("https://stranger.example", "k1") is None
        assert source.count("/keys") == 1  # no second look within half a minute
        source.serve("/keys", content(json.dumps(key_set(("k2", OTHER_KEY))).encode()))
        monkeypatch.setattr("shared.identity.tokens.jwks_client.COOLDOWN_SECONDS", 0.0)
        assert keys.find(issuer, "k2") is not None
        source.serve("/keys", content(b"<html>"))
        assert keys.find(issuer, "k3") is None
        assert keys.find(issuer, "k2") is not None


def test_a_discovery_document_of_another_issuer_is_not_believed() -> None:
    with MediaSource() as source:
        discovery = {"issuer": source.url, "jwks_uri": source.url + "/keys"}
        source.serve("/tenant/.well-known/openid-configuration", content(json.dumps(discovery).encode()))
        source.serve("/keys", content(json.dumps(key_set(("k1", KEY))).encode()))
        assert IssuerKeys(issuer_settings(source.url + "/tenant")).find(source.url + "/tenant", "k1") is None
        assert source.count("/keys") == 0


def test_keys_are_asked_for_through_the_guard() -> None:
    with MediaSource() as source:
        issuer = source.url
        source.serve("/.well-known/openid-configuration", content(b"{}"))
        guarded = make_settings(github_issuers=(issuer,), egress_allow_http=True)
        assert IssuerKeys(guarded).find(issuer, "k1") is None
        assert source.requests == []


def test_a_file_stands_for_discovery(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({ISSUER: key_set(("k1", KEY))}))
    keys = IssuerKeys(make_settings(github_issuers=(ISSUER,), github_keys_file=path))
    assert keys.find(ISSUER, "k1") is not None
    assert keys.find(ISSUER, "k2") is None


def issuer_settings(issuer: str) -> Any:
    return make_settings(github_issuers=(issuer,), egress_allow_private=True, egress_allow_http=True)


@pytest.mark.parametrize("entered", [{}, {"repositoryId": "1001", "repositoryOwnerId": "77"}])
def test_the_repository_of_another_issuer_is_another_one(
    workflows: Workflows, entered: dict[str, str]
) -> None:
    workflows.set(**entered)
    workflows.accept()
    workflows.refuse(signed(claims(iss=OTHER_ISSUER), key=OTHER_KEY))
    workflows.set(**entered)
    assert workflows.exchange(signed(claims(iss=OTHER_ISSUER), key=OTHER_KEY)).status_code == 200
