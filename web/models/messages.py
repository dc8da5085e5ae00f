"""Anthropic's dialect (docs/specification/models.md#messages): messages, and the estimated tokens of a prompt.

The calls and the engine are the same as in `routes`. Only the format differs.
"""

from flask import Response

from shared.errors import ValidationFailed
from shared.models.dialects import estimate_prompt_tokens, parse_messages, parse_prompt
from shared.models.dialects.messages_requests import MessagesCreation, MessagesPrompt
from shared.models.invocations import get_callable_model, require_model_access
from web.framework.authentication import Authentication
from web.framework.calls import JsonResponse, RequestContext
from web.framework.routes import Routes
from web.http.negotiation import EVENT_STREAM, JSON
from web.models.message_schemas import MessageBody, MessagesQuery, MessageStreamEvent, TokenCountBody
from web.models.routes import CREATION_ERRORS, read_call_body, require_callable_model, respond_to_call

routes = Routes("models")

_HEADERS = {
    "anthropic-version": "The version of the dialect that the client uses. Only one is supported.",
    "anthropic-beta": "The beta features that the client uses. None is supported.",
}


@routes.route(
    "POST",
    "/v1/messages",
    summary="Create a message in Anthropic's dialect, streamed if `stream` or `Accept: text/event-stream` requests it",
    authentication=Authentication.API_KEY_CALLER,
    query=MessagesQuery,
    headers=_HEADERS,
    body=MessagesCreation,
    responses={200: {JSON: MessageBody, EVENT_STREAM: MessageStreamEvent}},
    errors=(*CREATION_ERRORS, ValidationFailed),
)
def create_message(call: RequestContext) -> Response:
    return respond_to_call(call, parse_messages(read_call_body(call)))


@routes.route(
    "POST",
    "/v1/messages/count_tokens",
    summary="Get the estimated number of tokens of a prompt, free of charge",
    authentication=Authentication.API_KEY_CALLER,
    query=MessagesQuery,
    headers=_HEADERS,
    body=MessagesPrompt,
    responses={200: TokenCountBody},
    errors=(*CREATION_ERRORS, ValidationFailed),
)
def count_message_tokens(call: RequestContext) -> JsonResponse:
    body = read_call_body(call)
    # The engine checks the access for a call. An estimate makes no call, so check it here.
    require_model_access(call.caller)
    body.pop("stream", None)  # `Accept` may have set `stream`, but an estimate is not streamed, so ignore it.
    prompt = parse_prompt(body)
    entry = get_callable_model(call.services.models.catalog.current(), prompt)
    # Refuse as for a call, so that an estimate reveals no model that the key may not call.
    require_callable_model(call, entry.id)
    return JsonResponse(body=TokenCountBody(input_tokens=estimate_prompt_tokens(prompt)))
