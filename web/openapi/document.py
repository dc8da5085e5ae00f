"""Generate the OpenAPI 3.1 document from the declared routes. The routes' models also validate the requests."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.json_schema import models_json_schema

from shared.files.references import ReferenceKind
from shared.media.networks.registry import NETWORKS
from web.framework.authentication import Authentication
from web.framework.routes import FilePart, FormBody, JsonOrForm, RawBody, Route
from web.openapi.a2a_components import A2A_ERROR_SCHEMA
from web.openapi.components import (
    ANTHROPIC_ERROR_SCHEMA,
    OAUTH_SCHEMA,
    OPENAI_ERROR_SCHEMA,
    PROBLEM_SCHEMA,
    REF,
    SECURITY_SCHEMES,
    SIGNATURE_SCHEMES,
    ref,
)
from web.openapi.errors import describe_errors
from web.openapi.headers import HEADERS, PARAMETERS, header_parameters
from web.openapi.responses import add_headers, describe_responses, head_of, raw_content, shapes

# Marks a required parameter that is optional in the model, because the handler reports its absence.
X_REQUIRED = "x-required"
_PATH_PARAMETER = re.compile(r"<(?:(\w+):)?(\w+)>")

_SECURITY: Mapping[Authentication, list[dict[str, list[str]]]] = {
    Authentication.PUBLIC: [],
    Authentication.PREFLIGHT: [],
    Authentication.CALLER: [{"bearer": []}],
    Authentication.API_KEY_CALLER: [{"bearer": []}, {"apiKey": []}],
    Authentication.GRANT_OR_CALLER: [{"grant": []}, {"bearer": []}],
    Authentication.CLIENT: [{"client": []}, {}],  # The form may contain the secret instead of the header.
    Authentication.DISTRIBUTION: [{"distribution": []}],
    Authentication.DISTRIBUTION_OR_SIGNATURE: [{"distribution": []}, {"standardWebhooks": []}],
    Authentication.SIGNATURE: [{name: []} for name in SIGNATURE_SCHEMES],
    Authentication.PAYMENT_SIGNATURE: [{"stripeSignature": []}, {"standardWebhooks": []}],
}
_PATH_SCHEMAS: Mapping[str | None, dict[str, Any]] = {
    None: {"type": "string", "minLength": 1, "pattern": "^[^/]+$"},
    "id": {"type": "string", "format": "uuid"},
    "path": {"type": "string", "minLength": 1},
    # Exclude `:` from the id, because an A2A method follows it, as in `:cancel`.
    "task": {"type": "string", "minLength": 1, "pattern": "^[^/:]+$"},
    "month": {"type": "string", "pattern": "^2[0-9]{3}-(?:0[1-9]|1[0-2])$"},
    "network": {"type": "string", "enum": list(NETWORKS)},
    "reference_kind": {"type": "string", "enum": [kind.value for kind in ReferenceKind]},
    "reference_id": {
        "type": "string",
        "minLength": 1,
        "maxLength": 200,
        "pattern": "^[A-Za-z0-9._:-]{1,200}$",
    },
}


def describe(routes: Sequence[Route], *, base_url: str, version: str) -> dict[str, Any]:
    """Return the OpenAPI document of the given routes."""
    shown = [route for route in routes if not route.hidden]
    schemas, names = _schemas(shown)
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for route in shown:
        # Remove the converters from the path, because OpenAPI has none: the schemas of the parameters have
        # their patterns.
        path = _PATH_PARAMETER.sub(lambda match: "{" + to_camel(match[2]) + "}", route.path)
        paths[path][route.method.lower()] = operation = _operation(route, names)
        if route.method == "GET":
            # Flask serves HEAD for every GET, so add it to the document, unless the route declares its own
            # HEAD.
            paths[path].setdefault("head", head_of(operation))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Quartermaster",
            "version": version,
            "description": "Files, models and credits for agents.",
        },
        "servers": [{"url": base_url}],
        "paths": dict(paths),
        "components": {
            "schemas": schemas
            | {"Problem": PROBLEM_SCHEMA, "OAuthError": OAUTH_SCHEMA, "OpenAIError": OPENAI_ERROR_SCHEMA}
            | {"A2AError": A2A_ERROR_SCHEMA, "AnthropicError": ANTHROPIC_ERROR_SCHEMA},
            "parameters": dict(PARAMETERS),
            "headers": dict(HEADERS),
            "securitySchemes": SECURITY_SCHEMES | SIGNATURE_SCHEMES,
        },
    }


def _operation(route: Route, names: Mapping[Any, str]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "description": route.description,
        "tags": [route.tag],
        "security": _SECURITY[route.authentication],
        "parameters": [
            *_path_parameters(route),
            *_query_parameters(route),
            *header_parameters(route),
        ],
        "responses": add_headers(route, describe_responses(route, names) | describe_errors(route)),
    }
    body = _body(route, names)
    if body is not None:
        described["requestBody"] = body
    return described


def _path_parameters(route: Route) -> Iterable[dict[str, Any]]:
    for converter, name in _PATH_PARAMETER.findall(route.path):
        yield {
            "name": to_camel(name),
            "in": "path",
            "required": True,
            "schema": _PATH_SCHEMAS[converter or None],
        }


def _query_parameters(route: Route) -> Iterable[dict[str, Any]]:
    if route.query is None:
        return
    shape = route.query.model_json_schema(by_alias=True)
    for name, schema in shape.get("properties", {}).items():
        plain = _without_null(dict(schema))
        required = name in shape.get("required", ()) or plain.pop(X_REQUIRED, False)
        described = {"name": name, "in": "query", "required": required, "schema": plain}
        if "description" in plain:
            described["description"] = plain.pop("description")
        plain.pop("title", None)
        yield described


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter without null: in a query, null is an absent parameter."""
    choices = [choice for choice in schema.pop("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1:
        schema = choices[0] | schema
    # Remove a default of null, which means an absent parameter. The `0` stands for a schema without a
    # default.
    if schema.get("default", 0) is None:
        del schema["default"]
    return schema


def _body(route: Route, names: Mapping[Any, str]) -> dict[str, Any] | None:
    if isinstance(route.body, FilePart):
        part = {"type": "string", "format": "binary", "contentMediaType": "application/octet-stream"}
        form = {
            "type": "object",
            "properties": {"file": part},
            "required": ["file"],
            "additionalProperties": False,
        }
        return {"required": True, "content": {"multipart/form-data": {"schema": form}}}
    if isinstance(route.body, FormBody):
        form = {
            "type": "object",
            "properties": {
                name: {"type": "string", "description": text} for name, text in route.body.fields.items()
            },
            "required": list(route.body.required),
            "additionalProperties": {"type": "string"},
        }
        return {"required": True, "content": {"application/x-www-form-urlencoded": {"schema": form}}}
    if isinstance(route.body, JsonOrForm):
        return {"required": True, "content": _json_or_form(route.body, names)}
    if isinstance(route.body, RawBody):
        return {"required": True, "content": {at: raw_content(at) for at in route.body.media_types}}
    if route.body is not None:
        return {
            "required": True,
            "content": {"application/json": {"schema": ref(names[route.body, "validation"])}},
        }
    return None


def _json_or_form(body: JsonOrForm, names: Mapping[Any, str]) -> dict[str, Any]:
    fields = body.fields.model_json_schema(by_alias=True)
    part = {"type": "string", "format": "binary", "contentMediaType": "application/octet-stream"}
    form = {
        "type": "object",
        "description": fields["description"],
        "properties": {
            **{name: _without_null(dict(schema)) for name, schema in fields["properties"].items()},
            "file": part,
        },
        "required": [*fields.get("required", ()), "file"],
        "additionalProperties": False,
    }
    shapes = [ref(names[shape, "validation"]) for shape in body.json]
    return {"application/json": {"schema": {"anyOf": shapes}}, "multipart/form-data": {"schema": form}}


def _schemas(routes: Sequence[Route]) -> tuple[dict[str, Any], dict[Any, str]]:
    models: list[tuple[type[BaseModel], Any]] = []
    for route in routes:
        for content in route.responses.values():
            models += [(shape, "serialization") for shape in shapes(content).values() if shape is not None]
        if isinstance(route.body, type):
            models.append((route.body, "validation"))
        if isinstance(route.body, JsonOrForm):
            models += [(shape, "validation") for shape in route.body.json]
    # Keep the order of the routes, so that every process and release generates the same document.
    unique = list(dict.fromkeys(models))
    references, document = models_json_schema(unique, by_alias=True, ref_template=REF)
    names = {key: reference["$ref"].rpartition("/")[2] for key, reference in references.items()}
    return document.get("$defs", {}), names
