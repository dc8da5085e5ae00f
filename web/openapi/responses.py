"""The responses of the OpenAPI document: the successes that routes declare, and a HEAD operation for each GET."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from web.framework.routes import Content, Route
from web.openapi.components import STATUS_MEANINGS, ref
from web.openapi.headers import response_headers

_FIRST_REDIRECT = 300
_TEXT: dict[str, Any] = {"type": "string"}
_BYTES: dict[str, Any] = {"type": "string", "format": "binary"}
_EVENTS = "text/event-stream"


def shapes(content: Content) -> Mapping[str, type[BaseModel] | None]:
    """Return the models of a response by media type."""
    if content is None:
        return {}
    if isinstance(content, str):
        return {content: None}
    return content if isinstance(content, Mapping) else {"application/json": content}


def describe_responses(route: Route, names: Mapping[Any, str]) -> dict[str, Any]:
    """Return the successful responses of a route, by status."""
    responses: dict[str, Any] = {}
    for status, content in route.responses.items():
        response: dict[str, Any] = {"description": _meaning(status, content)}
        media = {name: _media(name, shape, names) for name, shape in shapes(content).items()}
        if media:
            response["content"] = media
        # Add links to a success only: a link takes its values from that response.
        if route.links and status < _FIRST_REDIRECT:
            response["links"] = {
                linked: {"operationId": linked, "parameters": dict(parameters)}
                for linked, parameters in route.links.items()
            }
        responses[str(status)] = response
    return responses


def add_headers(route: Route, responses: dict[str, Any]) -> dict[str, Any]:
    """Return the responses with their headers."""
    return {
        status: response | {"headers": response_headers(route, status)}
        for status, response in responses.items()
    }


def head_of(operation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the HEAD operation of a GET. It has the same responses without content."""
    responses = {
        status: {"description": "As for GET, without content.", "headers": response["headers"]}
        for status, response in operation["responses"].items()
    }
    return {
        **operation,
        "operationId": f"head_{operation['operationId']}",
        "summary": "Check the response of GET, without its content",
        "description": "",
        "responses": responses,
    }


def _meaning(status: int, content: Content) -> str:
    meaning = STATUS_MEANINGS.get(status, "Success.")
    if _EVENTS not in shapes(content):
        return meaning
    return f"{meaning} In `{_EVENTS}` each event's `data` has this shape."


def raw_content(media_type: str) -> dict[str, Any]:
    """Return the schema of content that has no model, by its media type."""
    if media_type.endswith(("json", "form-urlencoded")):
        return {"schema": {"type": "object"}}
    return {"schema": _TEXT if media_type.startswith("text/") else _BYTES}


def _media(name: str, shape: type[BaseModel] | None, names: Mapping[Any, str]) -> dict[str, Any]:
    return raw_content(name) if shape is None else {"schema": ref(names[shape, "serialization"])}
