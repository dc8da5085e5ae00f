"""A browser of the console that uses any web process: it opens pages, submits forms, and checks every response."""

import random
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import requests

from tests.chaos.console.records import OpenSession
from tests.chaos.installation import Installation
from tests.chaos.retrying_client import ATTEMPT_SECONDS, Send
from tests.support.web.browser import token_in
from web.console.cookies import ATTEMPT, SESSION

SIGN_IN = "/console/in"
SEE_OTHER = 303
_SECRET = re.compile(r'<code id="secret">([^<]+)</code>')


class ConsoleBrowser:
    """One person's browser, which follows no redirect automatically."""

    def __init__(self, installation: Installation, chance: random.Random) -> None:
        self._retrying_client = installation.retrying_client
        self._fronts = installation.fronts
        self._random = chance

    def open(
        self, path: str, session: OpenSession | None = None, *, via: str | None = None
    ) -> requests.Response:
        """Open a page and retry until it is available, through any web process or a given one."""
        cookies = {} if session is None else {SESSION: session.cookie}
        return self._retrying_client.ask(path, lambda front: _send("GET", (via or front) + path, cookies))

    def submit(self, path: str, session: OpenSession, **fields: str) -> requests.Response:
        """Submit an idempotent form, and retry until there is a response."""
        sent = {"csrf": session.csrf, **fields}
        cookies = {SESSION: session.cookie}
        return self._retrying_client.ask(path, lambda front: _send("POST", front + path, cookies, sent))

    def submit_once(self, path: str, session: OpenSession, **fields: str) -> requests.Response | None:
        """Submit a form once. Return None if the result is unknown."""
        sent = {"csrf": session.csrf, **fields}
        cookies = {SESSION: session.cookie}
        return self._once(path, lambda front: _send("POST", front + path, cookies, sent))

    def sign_in(self, code: str) -> requests.Response | None:
        """Open the sign-in page and submit a link's code once."""
        page = self.open(SIGN_IN)
        cookies, sent = {ATTEMPT: page.cookies[ATTEMPT]}, {"csrf": token_in(page.text), "code": code}
        return self._once(SIGN_IN, lambda front: _send("POST", front + SIGN_IN, cookies, sent))

    def _once(self, path: str, send: Send) -> requests.Response | None:
        return self._retrying_client.ask_once(path, send, self._random.choice(self._fronts))


def leads_to(answer: requests.Response, path: str) -> bool:
    """Return whether a response redirects to a page."""
    return answer.status_code == SEE_OTHER and urlsplit(answer.headers["Location"]).path == path


def cookie_in(answer: requests.Response) -> str | None:
    """Return the session cookie that a response sets, or None."""
    return answer.cookies.get(SESSION)


def secret_in(text: str) -> str:
    """Return the secret that a page shows once."""
    found = _SECRET.search(text)
    assert found, text[:500]
    return found[1]


def _send(
    method: str, url: str, cookies: Mapping[str, str], form: Mapping[str, str] | None = None
) -> requests.Response:
    # The cookies are Secure. The library would drop them over plain HTTP; browsers accept them from localhost.
    shown = "; ".join(f"{name}={value}" for name, value in cookies.items())
    headers = {"Sec-Fetch-Site": "same-origin", "Accept": "text/html", "Connection": "close", "Cookie": shown}
    return requests.request(
        method, url, headers=headers, data=form, timeout=ATTEMPT_SECONDS, allow_redirects=False
    )
