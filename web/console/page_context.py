"""The context of a request to the console: the session, the form, and the rendering of the page."""

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

# Allow no inline script or style: text that a template fails to escape then cannot run.
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
    """A request of a session.

    A page has its declaration here, and an action has the fields of its form.
    """

    call: RequestContext
    page: Page | None = None
    form: Mapping[str, str] = field(default_factory=dict)
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def services(self) -> Services:
        """The services of the web process."""
        return self.call.services

    @property
    def caller(self) -> Caller:
        """The caller, as in REST. Raises OrganizationSuspended if the caller's organization is suspended."""
        return self.call.caller

    @property
    def actor(self) -> Actor:
        """The user as an administrative actor, as in REST."""
        return self.call.actor

    @property
    def user_id(self) -> UUID:
        """The id of the session's user."""
        return self.call.credential.caller.executor.id if self.call.credential.caller else UUID(int=0)

    @property
    def organization_id(self) -> UUID:
        """The session's organization. Raises RedirectError if the user has not chosen an organization yet."""
        organization_id = self.caller.organization_id
        if organization_id is None:
            raise RedirectError("/console/organizations")
        return organization_id

    def holds(self, permission: Permission) -> bool:
        """Return whether the user holds a permission in the organization.

        A page shows no action for which the user lacks the permission.
        """
        return permission in self.caller.permissions_on(organization_id=self.organization_id)

    def labels(self, session: Session, ids: Iterable[UUID | str | None]) -> Mapping[str, Label]:
        """Return the names of the organization's resources, by id as text. Unknown ids are left out."""
        # Convert to UUID: usage reports have ids as text, and rows have ids as UUIDs.
        wanted = [UUID(str(at)) for at in ids if at is not None]
        found = find_labels(session, self.organization_id, wanted)
        return {str(at): label for at, label in found.items()}

    def require_step_up(self, return_to: str) -> None:
        """Raise RedirectError unless the user has just confirmed their identity.

        After the confirmation, the browser returns to `return_to`.
        """
        if not self.call.credential.has_stepped_up:
            # Quote the path: a `#` in it would end the query.
            raise RedirectError(f"{STEP_UP}?next={quote(return_to, safe='/')}")

    def render(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """Return a page in the console's frame.

        If a script of the page requested a fragment, return the fragment alone.
        """
        return self.prepare(template, status=status)(**values)

    def prepare(self, template: str, *, status: int = 200, **values: Any) -> Callable[..., Response]:
        """Read the rows that the frame needs.

        Return a function that renders the page without the database.
        """
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
            # Later values win: a page that an action returns has no declaration, so the action sets its
            # title.
            all_values = {**frame, **values, **more}
            return forbid_caching(page(f"console/{template}", policy=POLICY, status=status, **all_values))

        return show


def forbid_caching(response: Response) -> Response:
    """Forbid caches to store a page, and declare that htmx gets another response at the same URL."""
    # With `no-store`, the back button shows no page after the user has signed out.
    response.headers["Cache-Control"] = "no-store"
    response.vary.add("HX-Request")
    return response
