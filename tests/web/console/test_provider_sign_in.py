"""Signing in at a provider of OpenID Connect: whom it vouches for, and everything that does not count."""

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
    """The user whom the provider vouches for, unless a test has it say something else."""
    person = front.identity.person(front.identity.organization().id, Role.WORKSPACE_OWNER)
    provider.email, provider.claims, provider.signing_key = person.email.upper(), {}, None
    return person


def begin(browser: Browser, provider: Provider) -> dict[str, str]:
    answer = browser.get(BEGIN)
    assert answer.status == 303, answer.text
    return provider.authorize(answer.location)


def come_back(browser: Browser, query: dict[str, str]) -> Answer:
    """As a browser that another site has sent here."""
    return browser.get(f"{BACK}?{urlencode(query)}", {"Sec-Fetch-Site": "cross-site"})


def test_the_provider_is_asked_where_it_is_once_for_many_sign_ins(
    stranger: Browser, provider: Provider, owner: Person
) -> None:
    assert come_back(stranger, begin(stranger, provider)).status == 303
    provider.asked.clear()
    assert come_back(stranger, begin(stranger, provider)).status == 303
    assert provider.asked == ["/keys"], "the addresses are known, the keys are read each time"


def test_the_provider_vouches_for_a_user_of_ours(
    stranger: Browser, provider: Provider, owner: Person
) -> None:
    assert BEGIN in stranger.get("/console/in").text
    signed_in = come_back(stranger, begin(stranger, provider))
    assert (signed_in.status, signed_in.location) == (303, "/console")
    assert "HttpOnly" in signed_in.cookies[SESSION]
    assert ATTEMPT not in stranger.cookies
    assert owner.email in stranger.get("/console/organizations").text


def test_an_answer_is_good_in_the_browser_that_asked_and_once(
    stranger: Browser, provider: Provider, owner: Person
) -> None:
    answered = begin(stranger, provider)
    elsewhere = Browser(port=stranger.port)
    begin(elsewhere, provider)
    for browser in (elsewhere, Browser(port=stranger.port)):
        assert come_back(browser, answered).status == 422
        assert SESSION not in browser.cookies
    attempt = stranger.cookies[ATTEMPT]
    assert come_back(stranger, answered).status == 303
    stranger.cookies.clear()
    stranger.cookies[ATTEMPT] = attempt
    assert come_back(stranger, answered).status == 422
    assert SESSION not in stranger.cookies


def test_a_session_or_attempt_that_was_planted_is_not_the_one_that_begins(
    stranger: Browser, provider: Provider, owner: Person
) -> None:
    stranger.cookies[ATTEMPT] = "planted"
    answered = begin(stranger, provider)
    assert stranger.cookies[ATTEMPT] != "planted"
    stranger.cookies[SESSION] = "svc_planted"
    come_back(stranger, answered)
    assert stranger.cookies[SESSION] != "svc_planted"


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
    stranger: Browser, provider: Provider, owner: Person, claims: dict[str, Any]
) -> None:
    answered = begin(stranger, provider)
    provider.claims = claims
    refused = come_back(stranger, answered)
    assert (refused.status, SESSION in stranger.cookies) == (422, False)


def test_a_token_of_another_key_signs_nobody_in(stranger: Browser, provider: Provider, owner: Person) -> None:
    answered = begin(stranger, provider)
    provider.signing_key = RSAKey.generate_key(2048, {"kid": "one"})
    assert come_back(stranger, answered).status == 422


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
    stranger: Browser, provider: Provider, owner: Person, changes: dict[str, str]
) -> None:
    refused = come_back(stranger, begin(stranger, provider) | changes)
    assert (refused.status, SESSION in stranger.cookies) == (422, False)


def test_a_user_who_is_disabled_stays_outside(
    front: Front, stranger: Browser, provider: Provider, owner: Person
) -> None:
    with front.services.database.transaction() as session:
        disable_user(session, actor=OPERATOR, user_id=owner.user_id)
    assert come_back(stranger, begin(stranger, provider)).status == 422


def test_one_who_was_seen_long_ago_proves_nothing_new(
    stranger: Browser, provider: Provider, owner: Person
) -> None:
    answered = begin(stranger, provider)
    provider.claims = {"auth_time": int(time.time()) - 700}
    assert come_back(stranger, answered).status == 422
