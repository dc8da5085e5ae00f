"""One request, read and checked, as a handler receives it; and the answer it gives back."""

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

_SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """A request whose credentials and parameters have passed; `query` has the route's shape.

    `admission` has the slots that it holds, and the key that they are counted for. Who asks may change with a body that
    was waited for: a handler takes `caller`, `actor` and `credential` when it has read it.
    """

    http: Request
    services: Services
    admission: Admission
    _requester: Requester
    body_shape: type[BaseModel] | None = None
    _query: BaseModel | None = None

    @property
    def credential(self) -> Credential:
        """What was presented, whether or not a caller stands behind it."""
        credential = self._requester.credential
        if credential is None:
            raise RuntimeError("a public route has no credential")
        return credential

    @property
    def has_credential(self) -> bool:
        """Whether one was presented, where the route also takes something else."""
        return self._requester.credential is not None

    @property
    def caller(self) -> Caller:
        """Who asks; raises OrganizationSuspended where they act in an organization that is suspended."""
        caller = self._known_caller
        if caller.is_suspended:
            raise OrganizationSuspended
        return caller

    @property
    def actor(self) -> Actor:
        """Who administers; raises PermissionDenied for a deployment."""
        return administrator(self._known_caller, request_id(), client_address(self.http.environ))

    def require_administrator(self) -> None:
        """Raise PermissionDenied for a deployment."""
        administrator(self._known_caller, request_id())

    def watch(self, authorize: Callable[[Caller], object]) -> Watch:
        """Give what watches, while a request is answered, whether its caller may still do what was authorized."""
        return partial(self.services.running.watch, self.caller, authorize)

    @property
    def _known_caller(self) -> Caller:
        caller = self._requester.caller
        if caller is None:
            raise RuntimeError("a public route has no caller")
        return caller

    @property
    def query(self) -> Any:
        """The query parameters, an instance of the route's query shape."""
        return self._query

    def read_body(self, **numbers: Any) -> Any:
        """Read the JSON body as an instance of the route's shape; checked last, so the handler asks.

        `numbers` are the standard library's `parse_int` and `parse_float`.
        """
        if self.body_shape is None:
            raise RuntimeError("this route declares no JSON body")
        if self.http.mimetype != "application/json":
            raise UnsupportedMediaType("Send the body as application/json.")
        return read_json(self.read_small_body(MAXIMUM_JSON_BYTES), self.body_shape, **numbers)

    def read_small_body(self, maximum_bytes: int) -> bytes:
        """Read the body to its end: the one way to a body that is not received part by part.

        If its sender was waited for, who asks is read again. Raises what `receive_deadlines.read_small_body` raises,
        InvalidToken, AttributionInvalid and OrganizationSuspended where they were revoked meanwhile, and Unavailable.
        """
        is_there = has_arrived(self.http.environ)
        raw = read_small_body(self.services.small_bodies, self.http.environ, maximum_bytes)
        if not is_there:
            self._requester.recheck_after_wait()
        return raw


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonResponse:
    """A status, a body of a declared shape, and headers."""

    body: BaseModel | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def assign_request_id(http: Request) -> str:
    """Take the caller's `X-Request-Id` if it is a sane one, else make one."""
    sent = http.headers.get("X-Request-Id", "")
    g.request_id = sent if _SANE_REQUEST_ID.fullmatch(sent) else os.urandom(16).hex()
    return cast("str", g.request_id)


def request_id() -> str:
    """Give the id of the request being answered."""
    return cast("str", g.get("request_id", ""))
