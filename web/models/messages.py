"""Anthropic's dialect (docs/specification/models.md#messages): messages, and an estimate of a prompt's tokens.

The same calls as `routes` creates, of the same engine, in another form.
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
from web.models.routes import CREATION_ERRORS, create_reply, read_creation, require_own

routes = Routes("models")

_HEADERS = {
    "anthropic-version": "Which version of the dialect the client speaks; there is one here.",
    "anthropic-beta": "Which previews the client would use; there are none here.",
}


@routes.route(
    "POST",
    "/v1/messages",
    summary="Create a message in Anthropic's dialect, streamed if `stream` or `Accept: text/event-stream` asks for it",
    authentication=Authentication.API_KEY_CALLER,
    query=MessagesQuery,
    headers=_HEADERS,
    body=MessagesCreation,
    responses={200: {JSON: MessageBody, EVENT_STREAM: MessageStreamEvent}},
    errors=(*CREATION_ERRORS, ValidationFailed),
)
def create_message(call: RequestContext) -> Response:
    return create_reply(call, parse_messages(read_creation(call)))


@routes.route(
    "POST",
    "/v1/messages/count_tokens",
    summary="Get the number of tokens of a prompt, by estimate and at no cost",
    authentication=Authentication.API_KEY_CALLER,
    query=MessagesQuery,
    headers=_HEADERS,
    body=MessagesPrompt,
    responses={200: TokenCountBody},
    errors=(*CREATION_ERRORS, ValidationFailed),
)
def count_message_tokens(call: RequestContext) -> JsonResponse:
    body = read_creation(call)
    require_model_access(call.caller)  # as no call does it that is made of the body
    body.pop("stream", None)  # as `Accept` may have asked for
    prompt = parse_prompt(body)
    entry = get_callable_model(call.services.models.catalog.current(), prompt)
    require_own(call, entry.id)
    return JsonResponse(body=TokenCountBody(input_tokens=estimate_prompt_tokens(prompt)))
