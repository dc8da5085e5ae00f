"""The model routes (docs/specification/models.md#requests), with OpenAI's paths, formats and errors."""

from typing import Any

from flask import Response

from shared.credits.errors import (
    BillingOrganizationRequired,
    BudgetExceeded,
    CreditPolicySuspended,
    InsufficientCredits,
    ModelNotAllowed,
    RateLimitExceeded,
)
from shared.credits.spending_limits.key_model_allowlist import find_caller_models
from shared.errors import DomainError, PermissionDenied, ServiceUnavailable, ValidationFailed
from shared.fairness.admission import ConcurrencyLimited
from shared.models.call_admission import ModelsOverloaded
from shared.models.dialects import Dialect, ParsedRequest, parse_chat, parse_responses
from shared.models.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    ModelAuthorizationDenied,
    ModelNotFound,
    ModelNotSupported,
    ResponseStateNotSupported,
)
from shared.models.invocations import get_model, invoke, require_model_access
from shared.models.providers.errors import CallCancelled, ProviderError, ProviderTimeout
from shared.models.reply_timeouts import CallLost
from web.framework.authentication import Authentication
from web.framework.calls import JsonResponse, RequestContext
from web.framework.routes import Routes
from web.http.negotiation import EVENT_STREAM, JSON, wants_events
from web.http.requests import MalformedJson, UnsupportedMediaType, parse_json
from web.models.catalog_schemas import (
    VERSION_HEADER,
    MessageModelBody,
    MessageModelList,
    ModelBody,
    ModelList,
    ModelListing,
    ModelsQuery,
    OneModel,
    page_of,
    wants_anthropic_format,
)
from web.models.chat_schemas import ChatCompletion, ChatStreamEvent
from web.models.creation_schemas import ChatCreation, ResponsesCreation
from web.models.response_schemas import ModelResponse, ResponseStreamEvent
from web.models.responses import document_response, streamed_response

routes = Routes("models")

_REFUSALS: tuple[type[DomainError], ...] = (
    BillingOrganizationRequired,
    ModelAuthorizationDenied,
    PermissionDenied,
    ModelNotFound,
    ServiceUnavailable,
)
CREATION_ERRORS: tuple[type[DomainError], ...] = (
    *_REFUSALS,
    ModelNotSupported,
    InsufficientCredits,
    CreditPolicySuspended,
    BudgetExceeded,
    RateLimitExceeded,
    InvalidRequest,
    ContextLengthExceeded,
    UnsupportedMediaType,
    ModelsOverloaded,
    ConcurrencyLimited,
    ProviderError,
    CallCancelled,
    ProviderTimeout,
    CallLost,
)


@routes.route(
    "GET",
    "/v1/models",
    summary="List the current text models that the caller's key may call",
    authentication=Authentication.API_KEY_CALLER,
    query=ModelsQuery,
    headers=VERSION_HEADER,
    responses={200: ModelListing},
    errors=(
        BillingOrganizationRequired,
        ModelAuthorizationDenied,
        PermissionDenied,
        ServiceUnavailable,
        ValidationFailed,
    ),
)
def list_models(call: RequestContext) -> JsonResponse:
    require_model_access(call.caller)
    models = call.services.models
    own = find_callable_models(call)
    entries = [entry for entry in models.catalog.current().entries if own is None or entry.id in own]
    if wants_anthropic_format(call.http):
        return JsonResponse(body=ModelListing(MessageModelList.of(entries, call.query)))
    usage = models.usage.current()
    # OpenAI's list has no pages, so all models are returned unless the client names a limit.
    page, _ = page_of(entries, call.query, limit=call.query.limit or len(entries))
    listed = [ModelBody.of(entry, usage) for entry in page]
    return JsonResponse(body=ModelListing(ModelList(object="list", data=listed)))


@routes.route(
    "GET",
    "/v1/models/<path:model>",
    summary="Get one model by its exact id, which may contain slashes",
    authentication=Authentication.API_KEY_CALLER,
    headers=VERSION_HEADER,
    responses={200: OneModel},
    errors=_REFUSALS,
)
def get_one_model(call: RequestContext, model: str) -> JsonResponse:
    require_model_access(call.caller)
    models = call.services.models
    entry = get_model(models.catalog.current(), model)
    # The catalog does not list a model without text output, so treat its id as unknown here too.
    if not entry.produces_text:
        raise ModelNotFound(param="model")
    require_callable_model(call, entry.id)
    if wants_anthropic_format(call.http):
        return JsonResponse(body=OneModel(MessageModelBody.of(entry)))
    return JsonResponse(body=OneModel(ModelBody.of(entry, models.usage.current())))


@routes.route(
    "POST",
    "/v1/chat/completions",
    summary="Create a chat completion, streamed if `stream` or `Accept: text/event-stream` requests it",
    authentication=Authentication.CALLER,
    body=ChatCreation,
    responses={200: {JSON: ChatCompletion, EVENT_STREAM: ChatStreamEvent}},
    errors=(*CREATION_ERRORS, ResponseStateNotSupported),
)
def create_chat_completion(call: RequestContext) -> Response:
    body = read_call_body(call)
    return respond_to_call(call, parse_chat(body))


@routes.route(
    "POST",
    "/v1/responses",
    summary="Create a stateless Response, streamed if `stream` or `Accept: text/event-stream` requests it",
    authentication=Authentication.CALLER,
    body=ResponsesCreation,
    responses={200: {JSON: ModelResponse, EVENT_STREAM: ResponseStreamEvent}},
    errors=(*CREATION_ERRORS, ResponseStateNotSupported),
)
def create_response(call: RequestContext) -> Response:
    body = read_call_body(call)
    # The operators set whether `store` may be absent, because some clients cannot send it.
    is_lenient = call.services.settings.absent_store_is_false
    return respond_to_call(call, parse_responses(body, store_absent_is_false=is_lenient))


def find_callable_models(call: RequestContext) -> tuple[str, ...] | None:
    """Return the models that the caller's key may call, or None if it may call all models."""
    with call.services.database.autocommit() as session:
        return find_caller_models(session, call.caller)


def require_callable_model(call: RequestContext, model_id: str) -> None:
    """Check that the caller's key may call a model. Raises ModelNotAllowed."""
    own = find_callable_models(call)
    if own is not None and model_id not in own:
        raise ModelNotAllowed


def read_call_body(call: RequestContext) -> dict[str, Any]:
    """Return the request's JSON object. Check first whether the caller may call any model."""
    require_model_access(call.caller)
    if call.http.mimetype != "application/json":
        raise UnsupportedMediaType("Send the body as application/json.")
    maximum = call.services.settings.max_model_request_bytes
    body = parse_json(call.read_small_body(maximum))
    if not isinstance(body, dict):
        raise MalformedJson
    # Set `stream` in the body, so that dialects and workers need not read the header.
    if wants_events(call.http):
        body["stream"] = True
    return body


def respond_to_call(call: RequestContext, request: ParsedRequest) -> Response:
    """Start the call. Return the reply as a document or a stream."""
    models = call.services.models
    # Take the slot before the call is queued, because queueing reserves credits.
    call.admission.hold(call.services.pools.model_calls)
    waited_seconds = call.admission.waited_seconds
    inbox = invoke(
        models.invoker, models.catalog.current(), call.caller, request, waited_seconds=waited_seconds
    )
    # Check access repeatedly while the reply is sent, so that a revocation ends a running call.
    watch = call.watch(require_model_access)
    if request.is_stream:
        return streamed_response(models.invoker, inbox, Dialect(request.dialect), watch, call.http.environ)
    return document_response(models.invoker, inbox, watch, call.http.environ)
