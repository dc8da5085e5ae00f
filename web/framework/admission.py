"""Which slots a request holds, and for whom: a stranger's at first, its organization's once that is known.

No request is worked on without a slot of its tenant's (`shared/fairness/admission.py`), held until the answer has been
sent or broken off, because a client that reads nothing keeps a thread waiting. What is answered without a slot (no such
address, a bad credential, no room) ends its connection.
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
    """Give the key of what a good credential pays for, when no attribution says otherwise."""
    if credential.distribution is not None:
        return PoolKey(credential.distribution.organization_id, credential.id)
    if credential.caller is not None:
        return caller_key(credential.caller)
    return PoolKey(credential.id, credential.id)


def caller_key(caller: Caller) -> PoolKey:
    """Give the key of a caller: who pays, or else the organization.

    A user without one counts as a stranger: an owner can invite any number of people, so none is a tenant alone.
    """
    tenant = caller.payer_id or caller.organization_id
    if tenant is not None:
        return PoolKey(tenant, caller.credential_id)
    user_id = caller.executor.id
    return PoolKey(user_id, caller.credential_id) if caller.is_operator else PoolKey(ANONYMOUS, user_id)


def admit(environ: WSGIEnvironment, pools: Pools, credential: Credential | None) -> Admission:
    """Take the slot of a request's thread, which is given back when its answer has been sent.

    Raises ConcurrencyLimited, PoolExhausted.
    """
    key = credential_key(credential) if credential is not None else pool_key(environ)
    waited_seconds: float = environ.get(WAITED, 0.0)
    slot = pools.requests.acquire(key, waited_seconds=waited_seconds)
    admission = environ[ADMISSION] = Admission(key, slot, waited_seconds=waited_seconds)
    return admission


def admit_always(environ: WSGIEnvironment, pools: Pools) -> Admission:
    """Admit a probe at once, with a slot if one is free."""
    key = pool_key(environ)
    admission = Admission(key, pools.probes.try_acquire(key))
    if admission.has_thread:
        environ[ADMISSION] = admission
    return admission


def give_slots_back(app: Flask) -> None:
    """Release the slots of every request when it is over; call it before other functions are registered."""
    if "admission" not in app.extensions:
        app.extensions["admission"] = True
        app.after_request(_end_with_answer)  # the first one registered runs last: no other can fail after it
        app.teardown_request(_end_unless_answering)


def _end_with_answer(response: Response) -> Response:
    admission: Admission | None = request.environ.get(ADMISSION)
    if admission is not None:
        if is_deferred(response):
            admission.leave_thread()
        call_when_sent(response, admission.end)
        admission.is_answering = True
    else:
        response.headers["Connection"] = "close"
    return response


def _end_unless_answering(_: BaseException | None) -> None:
    admission: Admission | None = request.environ.get(ADMISSION)
    if admission is not None and not admission.is_answering:
        admission.end()


def call_when_sent(response: Response, act: Callable[[], None]) -> None:
    """Call a function once the answer has been sent to its end, or broken off."""
    body: Any = response.response
    if isinstance(body, DeferredResponse):
        body.call_on_close(act)
    elif response.direct_passthrough:
        # The server is given the body itself, so that it may use sendfile, and closes nothing else.
        body.close = partial(_close_both, getattr(body, "close", None), act)
    else:
        response.call_on_close(act)


def _close_both(close: Callable[[], None] | None, act: Callable[[], None]) -> None:
    try:
        if close is not None:
            close()
    finally:
        act()
