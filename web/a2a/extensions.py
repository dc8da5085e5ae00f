"""Negotiate extensions on every A2A route, and list the activated extensions in every response.

Streams and error responses list them too. The request header is read under its current name and its name in
version 0.3. Activation depends on the agent alone, so the response lists the extensions even if the
credential was refused.
"""

from uuid import UUID

from flask import Flask, Response, current_app, g, request

from shared.a2a.agents.extensions import activate, read_requested
from shared.errors import DomainError
from web.dependencies.services import Services
from web.error_responses.a2a_errors import is_a2a_path

HEADER = "A2A-Extensions"
HEADERS = (HEADER, "X-A2A-Extensions")


def requested_extensions() -> tuple[str, ...]:
    """Return the extensions that the header of the current request names."""
    return read_requested([value for name in HEADERS for value in request.headers.getlist(name)])


def active_extensions(deployment_id: UUID | None) -> tuple[str, ...]:
    """Return the agent's extensions that this request activates. Compute them once for each request.

    Raises AgentNotFound.
    """
    # Store the result, because both the handler and the response hook need it.
    if "a2a_extensions" not in g:
        requested = requested_extensions()
        active: tuple[str, ...] = ()
        if requested:
            services: Services = current_app.extensions["services"]
            active = activate(services.agents.directory.get(deployment_id).declared, requested)
        g.a2a_extensions = active
    known: tuple[str, ...] = g.a2a_extensions
    return known


def echo_extensions(app: Flask) -> None:
    """List the activated extensions in every response to a path of A2A."""

    def echo(response: Response) -> Response:
        is_asked = request.url_rule is not None and any(name in request.headers for name in HEADERS)
        if is_asked and is_a2a_path(request.path) and (active := _find_active()):
            response.headers[HEADER] = ", ".join(active)
        return response

    # Use a response hook, so that error responses list the extensions too.
    app.after_request(echo)


def _find_active() -> tuple[str, ...]:
    """Return the activated extensions.

    Return none if there is no such agent or the database is unavailable.
    """
    try:
        return active_extensions((request.view_args or {}).get("deployment_id"))
    except DomainError:
        return ()
