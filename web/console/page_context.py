"""The context of a request to the console: its session, its form, and the rendering of its page."""

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
from web.console.navigation import Page
from web.dependencies.services import Services
from web.framework.calls import RequestContext
from web.framework.rendering import asset_path, page

# No inline script or style: text that a template fails to escape still cannot run.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
STEP_UP = "/console/step-up"
SCRIPTS = ("htmx-2.0.11.min.js", "live.js")


class RedirectError(Exception):
    """The browser must first go to another page of the console."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.location = location


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContext:
    """A request of a session: for a page its declaration, for an action the fields of its form."""

    call: RequestContext
    page: Page | None = None
    form: Mapping[str, str] = field(default_factory=dict)
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def services(self) -> Services:
        """The services of this process."""
        return self.call.services

    @property
    def caller(self) -> Caller:
        """The caller, as in REST; raises OrganizationSuspended if their organization is suspended."""
        return self.call.caller

    @property
    def actor(self) -> Actor:
        """The user as an administrator, as in REST."""
        return self.call.actor

    @property
    def user_id(self) -> UUID:
        """The id of the session's user."""
        return self.call.credential.caller.executor.id if self.call.credential.caller else UUID(int=0)

    @property
    def organization_id(self) -> UUID:
        """The session's organization; raises RedirectError if the user has not chosen one yet."""
        organization_id = self.caller.organization_id
        if organization_id is None:
            raise RedirectError("/console/organizations")
        return organization_id

    def holds(self, permission: Permission) -> bool:
        """Return whether the user holds a permission in the organization; pages offer no action without it."""
        return permission in self.caller.permissions_on(organization_id=self.organization_id)

    def labels(self, session: Session, ids: Iterable[UUID | str | None]) -> Mapping[str, Label]:
        """Return the names of resources of the organization, by id as text; unknown ids are left out."""
        # Usage reports have ids as text, rows have them as UUIDs.
        wanted = [UUID(str(at)) for at in ids if at is not None]
        found = find_labels(session, self.organization_id, wanted)
        return {str(at): label for at, label in found.items()}

    def require_step_up(self, return_to: str) -> None:
        """Raise RedirectError unless the user confirmed their identity just before; they return to `return_to`."""
        if not self.call.credential.has_stepped_up:
            # Quoted: the `#` of a path would end the query.
            raise RedirectError(f"{STEP_UP}?next={quote(return_to, safe='/')}")

    def render(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """Return a page in the console's frame, or the fragment that a script of the page requested."""
        return self.prepare(template, status=status)(**values)

    def prepare(self, template: str, *, status: int = 200, **values: Any) -> Callable[..., Response]:
        """Read the rows that the frame needs, and return a function that renders the page without the database."""
        http = self.call.http
        known = self.call.credential.caller
        organization_id = known.organization_id if known else None
        with self.services.database.autocommit() as session:
            email, organization = read_user_and_organization_names(session, self.user_id, organization_id)
        frame = {
            "now": self.now,
            "path": http.path,
            "title": self.page.title if self.page else "",
            "is_operator": known is not None and known.is_operator,
            "email": email,
            "organization": organization,
            "theme": cookies.find_theme(http),
            "csrf": csrf.token_for(cookies.find_session(http) or ""),
            "scripts": [asset_path(name) for name in SCRIPTS],
        }

        def show(**more: Any) -> Response:
            # Later values win: the page that an action returns has no declaration, so the action sets its
            # title.
            all_values = {**frame, **values, **more}
            return forbid_caching(page(f"console/{template}", policy=POLICY, status=status, **all_values))

        return show


def forbid_caching(response: Response) -> Response:
    """Forbid caches to store a page, and mark that htmx gets another response at the same address."""
    # No page outlives its session in a cache: after signing out, the back button shows none.
    response.headers["Cache-Control"] = "no-store"
    response.vary.add("HX-Request")
    return response
