"""One request of a browser whose session has been recognized, as the handler of a page receives it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID

from flask import Response

from shared.db.database import Session
from shared.identity.access.authorization import Actor
from shared.identity.access.callers import Caller
from shared.identity.access.permissions import Permission
from shared.identity.directory.labels import Label, find_labels
from shared.identity.sign_in.console_sessions import read_user_and_organization_names
from web.console import cookies, csrf
from web.console.navigation import navigation
from web.dependencies.services import Services
from web.framework.calls import RequestContext
from web.framework.rendering import asset_path, page

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
STEP_UP = "/console/step-up"
SCRIPTS = ("htmx-2.0.11.min.js", "live.js")


class RedirectError(Exception):
    """The browser is to go to another page first."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.location = location


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContext:
    """A request of a session; `form` is what was posted."""

    call: RequestContext
    form: Mapping[str, str] = field(default_factory=dict)
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def services(self) -> Services:
        """What handlers use."""
        return self.call.services

    @property
    def caller(self) -> Caller:
        """Who asks, as REST has it."""
        return self.call.caller

    @property
    def actor(self) -> Actor:
        """Who administers, as REST has it."""
        return self.call.actor

    @property
    def user_id(self) -> UUID:
        """Whose session this is."""
        return self.call.credential.caller.executor.id if self.call.credential.caller else UUID(int=0)

    @property
    def organization_id(self) -> UUID:
        """Where the session acts; raises RedirectError where its user has to choose first."""
        organization_id = self.caller.organization_id
        if organization_id is None:
            raise RedirectError("/console/organizations")
        return organization_id

    def holds(self, permission: Permission) -> bool:
        """Tell whether the user holds a permission in the organization, so that what they may not do is not offered."""
        caller = self.caller
        held = caller.permissions_on(organization_id=self.organization_id)
        return permission in held

    def labels(self, session: Session, ids: Iterable[UUID | str | None]) -> Mapping[str, Label]:
        """Name what ids of the organization stand for, by the ids as text."""
        wanted = [UUID(str(at)) for at in ids if at is not None]
        found = find_labels(session, self.organization_id, wanted)
        return {str(at): label for at, label in found.items()}

    def require_step_up(self, back: str) -> None:
        """Raise RedirectError unless the user has proved only just who they are; they come back to `back`."""
        if not self.call.credential.has_stepped_up:
            raise RedirectError(f"{STEP_UP}?next={quote(back, safe='/')}")

    def render(self, template: str, *, status: int = 200, **context: Any) -> Response:
        """Answer with a page in the frame of the console, or with the part of it that a script asks for."""
        return self.prepare(template, status=status)(**context)

    def prepare(self, template: str, *, status: int = 200, **context: Any) -> Callable[..., Response]:
        """Read what the frame of a page needs; give what makes the page of all the rest, without waiting."""
        http = self.call.http
        known = self.call.credential.caller
        organization_id = known.organization_id if known else None
        with self.services.database.autocommit() as session:
            email, organization = read_user_and_organization_names(session, self.user_id, organization_id)
        frame = {
            "now": self.now,
            "path": http.path,
            "navigation": navigation(http.path, is_operator=known is not None and known.is_operator),
            "email": email,
            "organization": organization,
            "theme": cookies.theme(http),
            "csrf": csrf.token_for(cookies.find_session(http) or ""),
            "scripts": [asset_path(name) for name in SCRIPTS],
        }

        def show(**more: Any) -> Response:
            told = {**frame, **context, **more}
            return forbid_caching(page(f"console/{template}", policy=POLICY, status=status, **told))

        return show


def forbid_caching(response: Response) -> Response:
    """Keep a page out of caches, and apart from the part of it that a script asks for."""
    response.headers["Cache-Control"] = "no-store"
    response.vary.add("HX-Request")
    return response
