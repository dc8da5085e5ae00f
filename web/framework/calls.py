"""The checked request that a handler receives, and the JSON response that it returns."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from flask import Request, g
from pydantic import BaseModel

from shared.identity.access.authorization import Actor, administrator
from shared.identity.access.callers import Caller
from shared.identity.authentication.credential_types import Credential
from shared.identity.errors import OrganizationSuspended
from web.dependencies.services import Services
from web.framework.current_callers import Requester
from web.framework.revocation import Watch
from web.http.client_address import client_address
from web.http.receive_deadlines import read_small_body
from web.http.request_bodies import has_arrived
from web.http.requests import MAXIMUM_JSON_BYTES, UnsupportedMediaType, read_json
from web.http.slots import Admission

# The id is written to logs and headers, so accept a client's id only in this format.
_SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """A request with valid credentials and parameters.

    `query` has the type that the route declares. `admission` holds the request's slots and the key that they
    count for. The caller may be revoked while a handler waits for the body. So a handler uses `caller`,
    `actor` and `credential` only after it has read the body.
    """

    http: Request
    services: Services
    admission: Admission
    _requester: Requester
    body_shape: type[BaseModel] | None = None
    _query: BaseModel | None = None

    @property
    def credential(self) -> Credential:
        """The credential of the request. A distribution's credential has no caller."""
        credential = self._requester.credential
        if credential is None:
            raise RuntimeError("a public route has no credential")
        return credential

    @property
    def has_credential(self) -> bool:
        """Whether the request has a credential. Some routes also accept a request without a credential."""
        return self._requester.credential is not None

    @property
    def caller(self) -> Caller:
        """The caller. Raises OrganizationSuspended if the caller acts in a suspended organization."""
        caller = self._known_caller
        if caller.is_suspended:
            raise OrganizationSuspended
        return caller

    @property
    def actor(self) -> Actor:
        """The caller as an administrative actor. Raises PermissionDenied for a deployment."""
        return administrator(self._known_caller, request_id(), client_address(self.http.environ))

    def require_administrator(self) -> None:
        """Check that the caller is not a deployment. Raises PermissionDenied."""
        administrator(self._known_caller, request_id())

    def watch(self, authorize: Callable[[Caller], object]) -> Watch:
        """Return a watch that repeats `authorize` for the caller while the response is being sent."""
        return partial(self.services.running.watch, self.caller, authorize)

    @property
    def _known_caller(self) -> Caller:
        caller = self._requester.caller
        if caller is None:
            raise RuntimeError("a public route has no caller")
        return caller

    @property
    def query(self) -> Any:
        """The query parameters, as an instance of the type that the route declares."""
        return self._query

    def read_body(self, **numbers: Any) -> Any:
        """Return the JSON body as an instance of the type that the route declares.

        The handler calls this, because the body is checked after everything else. `numbers` are the standard
        library's `parse_int` and `parse_float`.
        """
        if self.body_shape is None:
            raise RuntimeError("this route declares no JSON body")
        if self.http.mimetype != "application/json":
            raise UnsupportedMediaType("Send the body as application/json.")
        return read_json(self.read_small_body(MAXIMUM_JSON_BYTES), self.body_shape, **numbers)

    def read_small_body(self, maximum_bytes: int) -> bytes:
        """Read the complete body. Every body that is not received part by part is read only here.

        If the body was slow to arrive, the caller is revalidated. Raises the errors of `read_small_body` in
        `receive_deadlines`; InvalidToken, AttributionInvalid or OrganizationSuspended if the caller was
        revoked meanwhile; and ServiceUnavailable.
        """
        was_waiting = not has_arrived(self.http.environ)
        raw = read_small_body(self.services.small_bodies, self.http.environ, maximum_bytes)
        if was_waiting:
            self._requester.recheck_after_wait()
        return raw


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonResponse:
    """A status, a body of a declared type, and headers."""

    body: BaseModel | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def assign_request_id(http: Request) -> str:
    """Store and return the request's id: the client's `X-Request-Id` if it is well-formed, else a random id."""
    sent = http.headers.get("X-Request-Id", "")
    g.request_id = sent if _SANE_REQUEST_ID.fullmatch(sent) else os.urandom(16).hex()
    return cast("str", g.request_id)


def request_id() -> str:
    """Return the id of the current request, or an empty string outside a request."""
    return cast("str", g.get("request_id", ""))
