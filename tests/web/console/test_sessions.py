"""Sessions of the console: sign-in links, expiry, sign-out, and protection against requests of other sites."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import func, select, update

from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.console_tables import console_links, console_sessions
from shared.identity.directory.users import disable_user, enable_user
from shared.identity.sign_in.console_sessions import sign_out_everywhere
from shared.identity.tables import audit_events, users
from tests.support.data.identity import Person
from tests.support.web.browser import Browser, new_code
from tests.support.web.web_process import Front

SignedIn = Callable[[Person], Browser]
SESSION = "__Host-qm"


@pytest.fixture
def owner(front: Front) -> Person:
    return front.identity.person(front.identity.organization("Acme").id, Role.WORKSPACE_OWNER)


def test_a_link_signs_its_user_in_and_is_good_once(front: Front, anonymous: Browser, owner: Person) -> None:
    code = new_code(front, owner.user_id)
    first = anonymous.submit("/console/in", "/console/in", code=code)
    assert (first.status, first.location) == (303, "/console")
    cookie = first.cookies[SESSION]
    for attribute in ("Secure", "HttpOnly", "SameSite=Lax", "Path=/"):
        assert attribute in cookie
    # The prefix `__Host-` forbids a domain.
    assert "Domain" not in cookie
    assert anonymous.get("/console/organizations").status == 200
    # In another browser, as a thief of the link would try.
    again = Browser(port=anonymous.port).submit("/console/in", "/console/in", code=code)
    assert (again.status, SESSION in again.cookies) == (422, False)
    assert "was used before" in again.text


def test_looking_at_a_link_does_not_use_it_up(front: Front, anonymous: Browser, owner: Person) -> None:
    code = new_code(front, owner.user_id)
    assert anonymous.get("/console/in").status == 200
    assert anonymous.submit("/console/in", "/console/in", code=code).status == 303


def test_a_link_ends_after_ten_minutes(front: Front, anonymous: Browser, owner: Person) -> None:
    code = new_code(front, owner.user_id)
    with front.services.database.transaction() as session:
        session.execute(
            update(console_links).values(expires_at=console_links.c.expires_at - timedelta(minutes=10))
        )
    assert anonymous.submit("/console/in", "/console/in", code=code).status == 422


def test_a_link_of_a_user_who_is_disabled_signs_nobody_in(
    front: Front, anonymous: Browser, owner: Person
) -> None:
    code = new_code(front, owner.user_id)
    with front.services.database.transaction() as session:
        disable_user(session, actor=OPERATOR, user_id=owner.user_id)
    assert anonymous.submit("/console/in", "/console/in", code=code).status == 422


@pytest.mark.parametrize("code", ["", "svl_", "x" * 5000, "svl_" + "0" * 49, "ключ"])
def test_what_is_no_code_signs_nobody_in(anonymous: Browser, code: str) -> None:
    answer = anonymous.submit("/console/in", "/console/in", code=code)
    assert (answer.status, SESSION in answer.cookies) == (422, False)


def test_a_session_that_a_browser_brought_along_is_not_the_one_that_begins(
    front: Front, anonymous: Browser, owner: Person, signed_in: SignedIn
) -> None:
    # An attacker plants their own session, in which the victim would then act.
    planted = signed_in(owner).cookies[SESSION]
    anonymous.cookies[SESSION] = planted
    victim = front.identity.person(front.identity.organization("Globex").id)
    anonymous.sign_in(front, victim.user_id)
    assert anonymous.cookies[SESSION] != planted
    assert "__Host-qm-in" not in anonymous.cookies
    assert anonymous.cookies[SESSION].startswith("svc_")


def test_without_a_session_every_page_leads_to_signing_in(anonymous: Browser) -> None:
    for cookie in (None, "svc_nothing", "svc_" + "0" * 49):
        if cookie:
            anonymous.cookies[SESSION] = cookie
        answer = anonymous.get("/console/organizations")
        assert (answer.status, answer.location) == (303, "/console/in")
        # A script must not put the sign-in page into a part of the page.
        part = anonymous.get("/console/organizations", {"HX-Request": "true"})
        assert (part.status, part.headers["HX-Redirect"]) == (401, "/console/in")


def test_signing_out_ends_the_session_at_once(owner: Person, signed_in: SignedIn) -> None:
    browser = signed_in(owner)
    token = browser.cookies[SESSION]
    answer = browser.submit("/console/organizations", "/console/out")
    assert (answer.location, SESSION in browser.cookies) == ("/console/in", False)
    browser.cookies[SESSION] = token
    assert browser.get("/console/organizations").status == 303


def test_sessions_end_by_idleness_by_age_and_with_their_user(
    front: Front, owner: Person, signed_in: SignedIn
) -> None:
    ends = [
        update(console_sessions).values(last_used_at=func.now() - timedelta(hours=2)),
        update(console_sessions).values(expires_at=func.now()),
    ]
    for end in ends:
        browser = signed_in(owner)
        with front.services.database.transaction() as session:
            session.execute(end.where(console_sessions.c.user_id == owner.user_id))
        assert browser.get("/console/organizations").status == 303
    browser = signed_in(owner)
    with front.services.database.transaction() as session:
        disable_user(session, actor=OPERATOR, user_id=owner.user_id)
    assert browser.get("/console/organizations").status == 303


def test_a_user_who_is_enabled_again_has_none_of_the_sessions_and_links_from_before(
    front: Front, owner: Person, signed_in: SignedIn
) -> None:
    browser, code = signed_in(owner), new_code(front, owner.user_id)
    with front.services.database.transaction() as session:
        disable_user(session, actor=OPERATOR, user_id=owner.user_id)
    with front.services.database.transaction() as session:
        enable_user(session, actor=OPERATOR, user_id=owner.user_id)
    assert browser.get("/console/organizations").status == 303
    assert browser.submit("/console/in", "/console/in", code=code).status == 422
    assert signed_in(owner).get("/console/organizations").status == 200


def test_an_operator_ends_all_sessions_and_links_of_a_user(
    front: Front, owner: Person, signed_in: SignedIn
) -> None:
    browsers, code = [signed_in(owner), signed_in(owner)], new_code(front, owner.user_id)
    with front.services.database.transaction() as session:
        assert sign_out_everywhere(session, actor=OPERATOR, user_id=owner.user_id) == 2
    assert {browser.get("/console/organizations").status for browser in browsers} == {303}
    assert browsers[0].submit("/console/in", "/console/in", code=code).status == 422


def test_a_session_is_stored_as_a_hash_and_what_it_does_is_audited(
    front: Front, owner: Person, signed_in: SignedIn
) -> None:
    browser = signed_in(owner)
    with front.services.database.transaction() as session:
        stored = session.execute(
            select(console_sessions).where(console_sessions.c.user_id == owner.user_id)
        ).one()
        act = session.execute(select(audit_events).where(audit_events.c.credential_id == stored.id)).one()
    assert browser.cookies[SESSION].encode() not in bytes(stored.hash)
    assert (act.action, act.actor_id) == ("console_session.began", owner.user_id)


def test_a_session_is_no_credential_of_rest(front: Front, owner: Person, signed_in: SignedIn) -> None:
    browser = signed_in(owner)
    token = browser.cookies[SESSION]
    assert browser.get("/console/organizations").status == 200
    assert browser.get("/admin/me").status == 401
    assert browser.get("/admin/me", {"Authorization": f"Bearer {token}"}).status == 401
    # The other way round: a key opens no page either.
    bearer = Browser(port=browser.port).get("/console/organizations", {"Authorization": owner.authorization})
    assert bearer.status == 303


def test_choosing_an_organization_moves_no_key(front: Front, owner: Person, signed_in: SignedIn) -> None:
    second = front.identity.organization("Second")
    with front.services.database.transaction() as session:
        from shared.identity.directory.memberships import add_member

        add_member(session, actor=OPERATOR, organization_id=second.id, email=owner.email, role=Role.MEMBER)
        before = session.execute(select(users).where(users.c.id == owner.user_id)).one()
    browser = signed_in(owner)
    answer = browser.submit("/console/organizations", "/console/organizations", organization=str(second.id))
    assert answer.status == 303
    assert "<bdi>Second</bdi></b>" in browser.get("/console/organizations").text
    with front.services.database.transaction() as session:
        assert session.execute(select(users).where(users.c.id == owner.user_id)).one() == before
    foreign = front.identity.organization("Foreign")
    refused = browser.submit("/console/organizations", "/console/organizations", organization=str(foreign.id))
    assert refused.status == 404


def test_a_theme_is_kept_by_the_browser(owner: Person, signed_in: SignedIn) -> None:
    browser = signed_in(owner)
    page = "/console/organizations"
    assert "data-theme" not in browser.get(page).text
    assert browser.submit(page, "/console/theme", theme="dark", next=page).location == page
    assert '<html lang="en" data-theme="dark">' in browser.get(page).text
    assert browser.submit(page, "/console/theme", theme="<script>").status == 422


def test_proving_who_one_is_takes_a_new_link_or_a_key_and_changes_the_session(
    front: Front, owner: Person, signed_in: SignedIn
) -> None:
    other = front.identity.person(front.identity.organization("Other").id)
    bound = front.identity.person(front.identity.organization("Bound").id, bound=True)
    for proof, status in [
        (owner.api_key, 303),
        (new_code(front, owner.user_id), 303),
        (other.api_key, 422),
        (bound.api_key, 422),
        (new_code(front, other.user_id), 422),
        ("svk_wrong", 422),
    ]:
        browser = signed_in(owner)
        before = browser.cookies[SESSION]
        answer = browser.submit(
            "/console/step-up", "/console/step-up", proof=proof, next="/console/organizations"
        )
        assert answer.status == status, proof
        assert (browser.cookies[SESSION] != before) is (status == 303)
        if status == 303:
            assert answer.location == "/console/organizations"
            assert Browser(port=browser.port, cookies={SESSION: before}).get("/console/step-up").status == 303


def test_a_key_that_is_bound_to_an_organization_proves_nothing(front: Front, signed_in: SignedIn) -> None:
    bound = front.identity.person(front.identity.organization("Bound").id, bound=True)
    form = {"proof": bound.api_key, "next": "/console/organizations"}
    assert signed_in(bound).submit("/console/step-up", "/console/step-up", **form).status == 422


def test_proving_who_one_is_again_does_not_make_a_session_last_longer(
    front: Front, owner: Person, signed_in: SignedIn
) -> None:
    browser = signed_in(owner)
    mine = console_sessions.c.user_id == owner.user_id
    with front.services.database.transaction() as session:
        soon = update(console_sessions).where(mine).values(expires_at=func.now() + timedelta(minutes=5))
        ends_at = session.execute(soon.returning(console_sessions.c.expires_at)).scalar_one()
    form = {"proof": owner.api_key, "next": "/console/organizations"}
    assert browser.submit("/console/step-up", "/console/step-up", **form).status == 303
    with front.services.database.autocommit() as session:
        live = select(console_sessions.c.expires_at).where(mine, console_sessions.c.revoked_at.is_(None))
        assert session.execute(live).scalar_one() == ends_at


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "/console/../admin",
        "javascript:alert(1)",
    ],
)
def test_nobody_is_led_elsewhere_afterwards(owner: Person, signed_in: SignedIn, target: str) -> None:
    browser = signed_in(owner)
    proved = browser.submit("/console/step-up", "/console/step-up", proof=owner.api_key, next=target)
    assert (proved.status, proved.location.startswith("/console")) == (303, True)
    assert ".." not in proved.location


HONEST = [
    {"Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": "", "Origin": "http://127.0.0.1:{port}"},
]
FORGED = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "", "Origin": "https://evil.example"},
    {"Sec-Fetch-Site": "", "Origin": "null"},
    {"Sec-Fetch-Site": ""},
]


@pytest.mark.parametrize("headers", [*HONEST, *FORGED], ids=str)
def test_a_form_is_taken_from_our_own_pages_alone(
    front: Front, owner: Person, signed_in: SignedIn, headers: dict[str, str]
) -> None:
    browser = signed_in(owner)
    token = browser.get("/console/organizations").token
    sent = {name: value.format(port=browser.port) for name, value in headers.items()}
    code = new_code(front, owner.user_id)
    attempt = Browser(port=browser.port)
    page = attempt.get("/console/in")
    expected = 303 if headers in HONEST else 403
    theme = browser.post("/console/theme", {"csrf": token, "theme": "dark"}, sent)
    assert (theme.status, "qm-theme" in browser.cookies) == (expected, expected == 303)
    entered = attempt.post("/console/in", {"csrf": page.token, "code": code}, sent)
    assert (entered.status, SESSION in attempt.cookies) == (expected, expected == 303)


@pytest.mark.parametrize("token", ["", "0" * 64, "é" * 64, "another session's"])
def test_a_form_without_the_sessions_token_does_nothing(
    front: Front, owner: Person, signed_in: SignedIn, token: str
) -> None:
    browser = signed_in(owner)
    if token.startswith("another"):
        token = signed_in(owner).get("/console/organizations").token
    assert browser.post("/console/out", {"csrf": token}).status == 403
    assert browser.get("/console/organizations").status == 200
    attempt = Browser(port=browser.port)
    attempt.get("/console/in")
    code = new_code(front, owner.user_id)
    assert attempt.post("/console/in", {"csrf": token, "code": code}).status == 403


def test_a_form_is_bounded_and_urlencoded(owner: Person, signed_in: SignedIn) -> None:
    browser = signed_in(owner)
    assert browser.ask("POST", "/console/out", "{}", {"Content-Type": "application/json"}).status == 415
    assert browser.post("/console/out", {"csrf": "x" * 300_000}).status == 413
    assert browser.ask("POST", "/console/out", "a=1&a=2").status == 400
    assert browser.ask("POST", "/console/out", "a=%ff").status == 400
    assert browser.ask("POST", "/console/out", "&".join(f"f{at}=1" for at in range(101))).status == 400


def test_pages_cannot_be_framed_run_only_our_scripts_and_are_kept_nowhere(
    front: Front, owner: Person, signed_in: SignedIn, anonymous: Browser
) -> None:
    browser = signed_in(owner)
    for answer in (
        browser.get("/console/organizations"),
        anonymous.get("/console/in"),
        browser.get("/console/nothing"),
    ):
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert answer.headers["Referrer-Policy"] == "same-origin"
        assert answer.headers["Cache-Control"] == "no-store"


def test_an_error_below_console_is_a_page(anonymous: Browser, owner: Person, signed_in: SignedIn) -> None:
    answer = anonymous.get("/console/nothing")
    assert (answer.status, answer.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
    assert "404 not_found" in answer.text
    assert answer.headers["X-Request-Id"] in answer.text
    wrong = signed_in(owner).get("/console/organizations?cursor=%3Cscript%3E")
    assert wrong.status == 400
    assert "<script>" not in wrong.text


def test_at_an_address_that_keeps_no_cookie_the_page_says_so(anonymous: Browser) -> None:
    assert "needs https" not in anonymous.get("/console/in").text
    elsewhere = anonymous.get("/console/in", {"Host": "qm.example"})
    assert "needs https" in elsewhere.text


def test_without_a_provider_there_is_none_to_sign_in_at(anonymous: Browser) -> None:
    assert "/console/in/provider" not in anonymous.get("/console/in").text
    assert anonymous.get("/console/in/provider").status == 404
    assert anonymous.get("/console/in/provider/back?code=1&state=2").status == 404
