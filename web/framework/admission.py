"""Slots of a request: taken for an anonymous client at first, then counted for its organization.

Every request holds a slot of its tenant (`shared/fairness/admission.py`) until the response has been sent or
aborted, because a client that does not read keeps a thread busy. A request that is answered without a slot
(an unknown path, an invalid credential, no free slot) ends its connection.
"""

from collections.abc import Callable
from functools import partial
from typing import Any
from wsgiref.types import WSGIEnvironment

from flask import Flask, Response, request

from shared.fairness.admission import ANONYMOUS, WAITED, PoolKey
from shared.identity.access.callers import Caller
from shared.identity.authentication.credential_types import Credential
from shared.runtime.deferred_responses import DeferredResponse
from web.dependencies.pools import Pools
from web.framework.deferred_responses import is_deferred
from web.http.slots import ADMISSION, Admission, pool_key


def credential_key(credential: Credential) -> PoolKey:
    """Return the key of a valid credential. An attribution may move the request to another key later."""
    if credential.distribution is not None:
        return PoolKey(credential.distribution.organization_id, credential.id)
    if credential.caller is not None:
        return caller_key(credential.caller)
    return PoolKey(credential.id, credential.id)


def caller_key(caller: Caller) -> PoolKey:
    """Return the key of a caller: the organization that pays, or else the caller's own organization.

    A user without an organization counts as an anonymous client: an owner can invite any number of people,
    and each would otherwise be a tenant.
    """
    tenant = caller.payer_id or caller.organization_id
    if tenant is not None:
        return PoolKey(tenant, caller.credential_id)
    user_id = caller.executor.id
    # Operators are few and appointed, so each operator may be a tenant.
    return PoolKey(user_id, caller.credential_id) if caller.is_operator else PoolKey(ANONYMOUS, user_id)


def admit(environ: WSGIEnvironment, pools: Pools, credential: Credential | None) -> Admission:
    """Acquire the slot of a request's thread. The slot is released when the response has been sent.

    Raises ConcurrencyLimited, PoolExhausted.
    """
    key = credential_key(credential) if credential is not None else pool_key(environ)
    waited_seconds: float = environ.get(WAITED, 0.0)
    slot = pools.requests.acquire(key, waited_seconds=waited_seconds)
    admission = environ[ADMISSION] = Admission(key, slot, waited_seconds=waited_seconds)
    return admission


def admit_always(environ: WSGIEnvironment, pools: Pools) -> Admission:
    """Admit a health probe without waiting. The probe takes a slot only if one is free."""
    key = pool_key(environ)
    admission = Admission(key, pools.probes.try_acquire(key))
    if admission.has_thread:
        environ[ADMISSION] = admission
    return admission


def release_slots_after_requests(app: Flask) -> None:
    """Release each request's slots when its response is over.

    Call this before any other `after_request` function is registered.
    """
    # Each group of routes calls this function, but the hook must be registered once.
    if "admission" not in app.extensions:
        app.extensions["admission"] = True
        # Flask runs `after_request` functions in reverse order, so this one runs last and no other can fail
        # after it.
        app.after_request(_end_with_response)
        app.teardown_request(_end_without_response)


def _end_with_response(response: Response) -> Response:
    admission: Admission | None = request.environ.get(ADMISSION)
    if admission is not None:
        if is_deferred(response):
            admission.leave_thread()
        call_when_sent(response, admission.end)
        admission.is_responding = True
    else:
        # Close the connection: a client without a slot could otherwise keep it open and idle.
        response.headers["Connection"] = "close"
    return response


def _end_without_response(_: BaseException | None) -> None:
    admission: Admission | None = request.environ.get(ADMISSION)
    if admission is not None and not admission.is_responding:
        admission.end()


def call_when_sent(response: Response, act: Callable[[], None]) -> None:
    """Call a function once the response has been sent completely or was aborted."""
    body: Any = response.response
    if isinstance(body, DeferredResponse):
        body.call_on_close(act)
    elif response.direct_passthrough:
        # Hand the body itself to the server, so that it can use sendfile. The server closes only the body, so
        # close both there.
        body.close = partial(_close_both, getattr(body, "close", None), act)
    else:
        response.call_on_close(act)


def _close_both(close: Callable[[], None] | None, act: Callable[[], None]) -> None:
    try:
        if close is not None:
            close()
    finally:
        act()
