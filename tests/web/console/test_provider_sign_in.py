"""Sign-in at an OpenID Connect provider: accepted identities, and every response that is refused."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from joserfc.jwk import RSAKey

from deploy.embedded.valkey import EmbeddedValkey
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.directory.users import disable_user
from tests.support.data.identity import Person
from tests.support.servers.oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider, running_provider
from tests.support.web.browser import Answer, Browser
from tests.support.web.web_process import Front, open_front

BEGIN, BACK = "/console/in/provider", "/console/in/provider/back"
SESSION, ATTEMPT = "__Host-qm", "__Host-qm-in"


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with running_provider() as provider:
        yield provider


@pytest.fixture(scope="module")
def front(
    database_url: str,
    valkey_server: EmbeddedValkey,
    tmp_path_factory: pytest.TempPathFactory,
    provider: Provider,
) -> Iterator[Front]:
    settings = {
        "oidc_issuer": provider.issuer,
        "oidc_client_id": CLIENT_ID,
        "oidc_client_secret": CLIENT_SECRET,
        "egress_allow_private": True,
        "egress_allow_http": True,
    }
    directory: Path = tmp_path_factory.mktemp("blobs")
    with open_front(database_url, valkey_server.url, directory, **settings) as front:
        yield front


@pytest.fixture
def owner(front: Front, provider: Provider) -> Person:
    """The user whose address the provider confirms, unless a test changes its token."""
    person = front.identity.person(front.identity.organization().id, Role.WORKSPACE_OWNER)
    # In capitals: addresses are compared without regard to the case of ASCII letters.
    provider.email, provider.claims, provider.signing_key = person.email.upper(), {}, None
    return person


def begin(browser: Browser, provider: Provider) -> dict[str, str]:
    answer = browser.get(BEGIN)
    assert answer.status == 303, answer.text
    return provider.authorize(answer.location)


def return_from_provider(browser: Browser, query: dict[str, str]) -> Answer:
    """Return the response to a browser that the provider redirects back."""
    return browser.get(f"{BACK}?{urlencode(query)}", {"Sec-Fetch-Site": "cross-site"})


def test_the_provider_is_asked_where_it_is_once_for_many_sign_ins(
    anonymous: Browser, provider: Provider, owner: Person
) -> None:
    assert return_from_provider(anonymous, begin(anonymous, provider)).status == 303
    provider.asked.clear()
    assert return_from_provider(anonymous, begin(anonymous, provider)).status == 303
    assert provider.asked == ["/keys"], "the addresses are known, the keys are read each time"


def test_the_provider_vouches_for_a_user_of_ours(
    anonymous: Browser, provider: Provider, owner: Person
) -> None:
    assert BEGIN in anonymous.get("/console/in").text
    signed_in = return_from_provider(anonymous, begin(anonymous, provider))
    assert (signed_in.status, signed_in.location) == (303, "/console")
    assert "HttpOnly" in signed_in.cookies[SESSION]
    assert ATTEMPT not in anonymous.cookies
    assert owner.email in anonymous.get("/console/organizations").text


def test_an_answer_is_good_in_the_browser_that_asked_and_once(
    anonymous: Browser, provider: Provider, owner: Person
) -> None:
    answered = begin(anonymous, provider)
    elsewhere = Browser(port=anonymous.port)
    begin(elsewhere, provider)
    for browser in (elsewhere, Browser(port=anonymous.port)):
        assert return_from_provider(browser, answered).status == 422
        assert SESSION not in browser.cookies
    attempt = anonymous.cookies[ATTEMPT]
    assert return_from_provider(anonymous, answered).status == 303
    anonymous.cookies.clear()
    # With the cookie of the attempt, so that only the used code is refused.
    anonymous.cookies[ATTEMPT] = attempt
    assert return_from_provider(anonymous, answered).status == 422
    assert SESSION not in anonymous.cookies


def test_a_session_or_attempt_that_was_planted_is_not_the_one_that_begins(
    anonymous: Browser, provider: Provider, owner: Person
) -> None:
    anonymous.cookies[ATTEMPT] = "planted"
    answered = begin(anonymous, provider)
    assert anonymous.cookies[ATTEMPT] != "planted"
    anonymous.cookies[SESSION] = "svc_planted"
    return_from_provider(anonymous, answered)
    assert anonymous.cookies[SESSION] != "svc_planted"


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example"},
        {"aud": "another"},
        {"aud": [CLIENT_ID, "another"]},
        {"nonce": "another"},
        {"nonce": None},
        {"exp": 1},
        {"exp": None},
        {"iat": 4_000_000_000},
        {"auth_time": 1},
        {"auth_time": None},
        {"email_verified": False},
        {"email_verified": "true"},
        {"email_verified": None},
        {"email": None},
        {"email": "nobody@example.org"},
        {"email": ""},
    ],
    ids=str,
)
def test_a_token_that_says_something_else_signs_nobody_in(
    anonymous: Browser, provider: Provider, owner: Person, claims: dict[str, Any]
) -> None:
    answered = begin(anonymous, provider)
    provider.claims = claims
    refused = return_from_provider(anonymous, answered)
    assert (refused.status, SESSION in anonymous.cookies) == (422, False)


def test_a_token_of_another_key_signs_nobody_in(
    anonymous: Browser, provider: Provider, owner: Person
) -> None:
    answered = begin(anonymous, provider)
    provider.signing_key = RSAKey.generate_key(2048, {"kid": "one"})
    assert return_from_provider(anonymous, answered).status == 422


@pytest.mark.parametrize(
    "changes",
    [
        {"state": ""},
        {"state": "ä"},
        {"code": ""},
        {"code": "guessed"},
        {"iss": "https://evil.example"},
        {"error": "access_denied", "code": ""},
    ],
    ids=str,
)
def test_what_the_provider_did_not_answer_signs_nobody_in(
    anonymous: Browser, provider: Provider, owner: Person, changes: dict[str, str]
) -> None:
    refused = return_from_provider(anonymous, begin(anonymous, provider) | changes)
    assert (refused.status, SESSION in anonymous.cookies) == (422, False)


def test_a_user_who_is_disabled_stays_outside(
    front: Front, anonymous: Browser, provider: Provider, owner: Person
) -> None:
    with front.services.database.transaction() as session:
        disable_user(session, actor=OPERATOR, user_id=owner.user_id)
    assert return_from_provider(anonymous, begin(anonymous, provider)).status == 422


def test_one_who_was_seen_long_ago_proves_nothing_new(
    anonymous: Browser, provider: Provider, owner: Person
) -> None:
    answered = begin(anonymous, provider)
    # Beyond MAX_AUTH_AGE_SECONDS (600) and the leeway of clocks.
    provider.claims = {"auth_time": int(time.time()) - 700}
    assert return_from_provider(anonymous, answered).status == 422
