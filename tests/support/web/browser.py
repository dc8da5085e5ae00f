"""A headless browser over HTTP: cookies, the headers that browsers add, and forms by their fields."""

import html
import http.client
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from urllib.parse import urlencode
from uuid import UUID

from flask import Flask
from sqlalchemy import update
from werkzeug.serving import WSGIRequestHandler, make_server

from shared.identity.access.authorization import OPERATOR
from shared.identity.console_tables import console_sessions
from shared.identity.sign_in.console_sessions import issue_link, sign_in
from tests.support.web.web_process import Front

_TOKEN = re.compile(r'name="csrf" value="([^"]*)"')


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A response."""

    status: int
    headers: Mapping[str, str]
    text: str
    cookies: Mapping[str, str]

    @property
    def location(self) -> str:
        return self.headers.get("Location", "")

    @property
    def token(self) -> str:
        """Return the token of the page's forms."""
        return token_in(self.text)


@dataclass(kw_only=True)
class Browser:
    """Keeps cookies, sends `Sec-Fetch-Site` as a browser on our own pages does, and follows no redirect."""

    port: int
    cookies: dict[str, str] = field(default_factory=dict)

    def ask(
        self, method: str, path: str, body: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        sent = {"Sec-Fetch-Site": "same-origin", "Accept": "text/html", **(headers or {})}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if body is not None:
            sent.setdefault("Content-Type", "application/x-www-form-urlencoded")
        sent = {name: value for name, value in sent.items() if value}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body=body, headers=sent)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        return Answer(
            status=response.status,
            headers=dict(response.getheaders()),
            text=text,
            cookies=self._keep(response.headers.get_all("Set-Cookie") or []),
        )

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, fields: Mapping[str, str], headers: Mapping[str, str] | None = None) -> Answer:
        return self.ask("POST", path, urlencode(fields), headers)

    def submit(self, page: str, action: str, **fields: str) -> Answer:
        """Open a page, and submit one of its forms."""
        return self.post(action, {"csrf": self.get(page).token, **fields})

    def sign_in(self, front: Front, user_id: UUID) -> Answer:
        """Sign in with a new link."""
        return self.submit("/console/in", "/console/in", code=new_code(front, user_id))

    def _keep(self, headers: list[str]) -> Mapping[str, str]:
        """Store the cookies of a response; return them with their attributes as sent."""
        sent = {}
        for header in headers:
            ((name, morsel),) = SimpleCookie(header).items()
            sent[name] = header
            if morsel["max-age"] == "0":
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = morsel.value
        return sent


def token_in(text: str) -> str:
    """Return the token of a page's forms."""
    found = _TOKEN.search(text)
    assert found, text[:500]
    return html.unescape(found[1])


class _Quiet(WSGIRequestHandler):
    def log(self, *_: object) -> None:
        pass


@contextmanager
def served(app: Flask) -> Iterator[int]:
    """Serve an application on a local port."""
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def new_code(front: Front, user_id: UUID) -> str:
    """Issue a sign-in link for a user; return its code."""
    with front.services.database.transaction() as session:
        return issue_link(session, actor=OPERATOR, user_id=user_id).code.value


def begin_session(front: Front, user_id: UUID, organization_id: UUID) -> str:
    """Create a session for an organization without a request; return its cookie."""
    with front.services.database.transaction() as session:
        begun = sign_in(session, issue_link(session, actor=OPERATOR, user_id=user_id).code.value)
        assert begun is not None
        this = update(console_sessions).where(console_sessions.c.id == begun.id)
        session.execute(this.values(organization_id=organization_id))
    return begun.token.value
