"""Accept a call to a model: the web process's part of an invocation (docs/specification/models.md#calls).

The steps are: check the permission, find the model, reserve the credits (the hold), queue the call. If a later step
fails, the hold is released at once. If this process dies, a sweep releases the hold.
"""

import time
from concurrent.futures import Executor
from dataclasses import dataclass
from uuid import UUID

import redis

from shared import failpoints
from shared.credits import holds
from shared.credits.authorization import require_billing_organization
from shared.db.database import Database
from shared.errors import ServiceUnavailable
from shared.fairness.admission import PoolKey
from shared.identity.access.callers import Caller
from shared.identity.access.permissions import Permission
from shared.ids import new_id
from shared.messaging.replies import Inbox, ReplyAddress, ReplyChannel
from shared.models.call_admission import CallAdmission, ModelsOverloaded
from shared.models.cancellations import Cancellations
from shared.models.catalog import Catalog, Endpoint, ModelEntry, upstreams_for
from shared.models.dialects import Dialect, ParsedRequest, estimate_prompt_tokens
from shared.models.errors import ModelAuthorizationDenied, ModelNotFound, ModelNotSupported
from shared.models.heartbeats import LeaseReader
from shared.models.queue.call_queue import AcceptedRequest, CallQueue
from shared.observability.telemetry import get_logger
from shared.observability.tracing import traceparent

log = get_logger(__name__)

ENDPOINTS = {
    Dialect.CHAT: Endpoint.CHAT_COMPLETIONS,
    Dialect.RESPONSES: Endpoint.RESPONSES,
    Dialect.MESSAGES: Endpoint.MESSAGES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The maximum number of queued calls, and the maximum number of completion tokens that one call reserves."""

    queued_calls: int
    reserved_completion_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoker:
    """The dependencies of calls in a web process.

    `threads` run the queries to Postgres and Valkey about silent calls, because the thread that sends responses must
    not block.
    """

    database: Database
    queue: CallQueue
    replies: ReplyChannel
    limits: Limits
    admission: CallAdmission
    leases: LeaseReader
    cancellations: Cancellations
    threads: Executor


def require_model_access(caller: Caller) -> UUID:
    """Return the organization that pays for the caller. Raises BillingOrganizationRequired or ModelAuthorizationDenied.

    The permission must cover the whole organization, because the call spends the organization's credits.
    """
    organization_id = require_billing_organization(caller)
    if Permission.MODEL_EXECUTE not in caller.permissions_on(organization_id=organization_id):
        raise ModelAuthorizationDenied(caller.describe_lack(Permission.MODEL_EXECUTE))
    return caller.payer_id or organization_id


def get_model(catalog: Catalog, model_id: str) -> ModelEntry:
    """Return a text-producing model of the catalog. Raises ModelNotFound."""
    entry = catalog.find(model_id)
    if entry is None:
        raise ModelNotFound(param="model")
    return entry


def get_callable_model(catalog: Catalog, request: ParsedRequest) -> ModelEntry:
    """Return the model that a request names, for a call. Raises ModelNotFound, ModelNotSupported."""
    entry = get_model(catalog, request.model)
    if not entry.supports(ENDPOINTS[request.dialect]):
        raise ModelNotSupported(param="model")
    return entry


def invoke(
    invoker: Invoker,
    catalog: Catalog,
    caller: Caller,
    request: ParsedRequest,
    *,
    waited_seconds: float = 0.0,
) -> Inbox:
    """Reserve a call's credits and queue the call. Return the inbox of the call's replies; the caller must close it.

    `waited_seconds` is deducted from the maximum wait for the organization's share. Raises BillingOrganizationRequired,
    ModelAuthorizationDenied, ModelNotFound, ModelNotSupported, InvalidRequest, ModelsOverloaded, ConcurrencyLimited,
    InsufficientCredits, CreditPolicySuspended, BudgetExceeded, RateLimitExceeded, ModelNotAllowed, ServiceUnavailable.
    """
    payer_id = require_model_access(caller)
    entry = upstreams_for(get_callable_model(catalog, request), request)
    # Check this before the hold, so that an overloaded service does not burden the database.
    _refuse_overload(invoker)
    reserved = invoker.limits.reserved_completion_tokens
    invocation = new_invocation(new_id(), payer_id, caller, entry, request, reserved_tokens=reserved)
    # Subscribe first: a reply may arrive before this process knows that the call is queued.
    inbox = _listen(invoker, invocation.id)
    try:
        # The credential in the key makes the wait fair among the payer's credentials, too.
        key = PoolKey(payer_id, caller.credential_id)
        invoker.admission.hold(invocation, key, limit=entry.concurrency_limit, waited_seconds=waited_seconds)
        failpoints.hit("invocation.held")
        _queue(invoker, inbox.address, payer_id, entry, request)
    except BaseException:
        inbox.close()
        invoker.admission.end(invocation.id)
        raise
    failpoints.hit("invocation.queued")
    return inbox


def give_up(invoker: Invoker, invocation_id: UUID) -> bool:
    """Release the hold of a call that no worker has begun.

    Return whether the hold was released. False means that a worker has begun the call, or that the database is
    unavailable, so that a worker may have begun it.
    """
    try:
        with invoker.database.autocommit() as session:
            voided = holds.void(session, invocation_id)
    except ServiceUnavailable:
        log.warning("invocation.not_given_up", invocation_id=invocation_id)
        return False
    if voided:
        try:
            invoker.queue.drop_requests(invocation_id)
        except redis.RedisError:
            log.warning("request.not_dropped", invocation_id=invocation_id)
    return voided


def _refuse_overload(invoker: Invoker) -> None:
    try:
        is_full = invoker.queue.is_full(invoker.limits.queued_calls)
    except redis.RedisError:
        # Valkey is unavailable and nothing was charged, so tell the client to retry.
        raise ModelsOverloaded from None
    if is_full:
        raise ModelsOverloaded


def _listen(invoker: Invoker, invocation_id: UUID) -> Inbox:
    try:
        return invoker.replies.open(invocation_id)
    except redis.RedisError:
        raise ModelsOverloaded from None


def _queue(
    invoker: Invoker, address: ReplyAddress, payer_id: UUID, entry: ModelEntry, request: ParsedRequest
) -> None:
    accepted = AcceptedRequest(
        entry=entry,
        dialect=request.dialect,
        is_stream=request.is_stream,
        created=int(time.time()),
        body=request.body,
        traceparent=traceparent(),
    )
    try:
        invoker.queue.put(address, accepted, organization_id=payer_id)
    except redis.RedisError:
        # A failed `put` does not prove that Valkey lost the call. If a worker may have begun the call, keep waiting for
        # its replies.
        if give_up(invoker, address.invocation_id):
            raise ModelsOverloaded from None


def new_invocation(
    invocation_id: UUID,
    payer_id: UUID,
    caller: Caller,
    entry: ModelEntry,
    request: ParsedRequest,
    *,
    reserved_tokens: int,
) -> holds.NewInvocation:
    """Return the description of a call for the reservation of its credits.

    The hold covers the estimated prompt and at most `reserved_tokens` completion tokens for each choice.
    """
    prompt_tokens = estimate_prompt_tokens(request)
    # Use the first limit that is set: the client's, the model's, the operator's.
    most = request.max_output_tokens or entry.max_completion_tokens or reserved_tokens
    completion_tokens = min(most, reserved_tokens) * request.n
    return holds.NewInvocation(
        id=invocation_id,
        organization_id=payer_id,
        model=entry.id,
        hold=entry.prices.price_at_most(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens),
        prices=entry.prices,
        estimated_prompt_tokens=prompt_tokens,
        held_tokens=prompt_tokens + completion_tokens,
        provider=entry.upstreams[0].provider.name,
        attribution=holds.Attribution.of(caller),
    )
