"""Generate the OpenAPI 3.1 document from the declared operations: the code that validates is what is described."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.json_schema import models_json_schema

from shared.files.references import ReferenceKind
from shared.media.networks.registry import NETWORKS
from web.a2a_errors import speaks_a2a
from web.authentication import Authentication
from web.operations.openapi_a2a import A2A_ERROR_SCHEMA, a2a_header_parameters
from web.operations.openapi_components import (
    OAUTH_SCHEMA,
    OPENAI_ERROR_SCHEMA,
    PROBLEM_SCHEMA,
    REF,
    SECURITY_SCHEMES,
    SIGNATURE_SCHEMES,
    STATUS_MEANINGS,
    ref,
)
from web.operations.openapi_errors import describe_errors
from web.routing import FilePart, FormBody, JsonOrForm, Operation, RawBody

X_REQUIRED = "x-required"
_PATH_PARAMETER = re.compile(r"<(?:(\w+):)?(\w+)>")
_FIRST_REDIRECT = 300

_SECURITY: Mapping[Authentication, list[dict[str, list[str]]]] = {
    Authentication.PUBLIC: [],
    Authentication.PREFLIGHT: [],
    Authentication.CALLER: [{"bearer": []}],
    Authentication.GRANT_OR_CALLER: [{"grant": []}, {"bearer": []}],
    Authentication.CLIENT: [{"client": []}, {}],  # the secret may stand in the form instead
    Authentication.DISTRIBUTION: [{"distribution": []}],
    Authentication.DISTRIBUTION_OR_SIGNATURE: [{"distribution": []}, {"standardWebhooks": []}],
    Authentication.SIGNATURE: [{name: []} for name in SIGNATURE_SCHEMES],
}
_PATH_SCHEMAS: Mapping[str | None, dict[str, Any]] = {
    None: {"type": "string", "minLength": 1, "pattern": "^[^/]+$"},
    "id": {"type": "string", "format": "uuid"},
    "path": {"type": "string", "minLength": 1},
    "task": {"type": "string", "minLength": 1, "pattern": "^[^/:]+$"},
    "network": {"type": "string", "enum": list(NETWORKS)},
    "reference_kind": {"type": "string", "enum": [kind.value for kind in ReferenceKind]},
    "reference_id": {
        "type": "string",
        "minLength": 1,
        "maxLength": 200,
        "pattern": "^[A-Za-z0-9._:-]{1,200}$",
    },
}


def describe(operations: Sequence[Operation], *, base_url: str, version: str) -> dict[str, Any]:
    """Give the OpenAPI document of these operations."""
    shown = [operation for operation in operations if not operation.hidden]
    schemas, names = _schemas(shown)
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for operation in shown:
        path = _PATH_PARAMETER.sub(lambda match: "{" + to_camel(match[2]) + "}", operation.path)
        paths[path][operation.method.lower()] = _operation(operation, names)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Quartermaster",
            "version": version,
            "description": "Stores, provisions and accounts for agents: exact files, models paid with credits.",
        },
        "servers": [{"url": base_url}],
        "paths": dict(paths),
        "components": {
            "schemas": schemas
            | {"Problem": PROBLEM_SCHEMA, "OAuthError": OAUTH_SCHEMA, "OpenAIError": OPENAI_ERROR_SCHEMA}
            | {"A2AError": A2A_ERROR_SCHEMA},
            "securitySchemes": SECURITY_SCHEMES | SIGNATURE_SCHEMES,
        },
    }


def _operation(operation: Operation, names: Mapping[Any, str]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": operation.description,
        "tags": [operation.tag],
        "security": _SECURITY[operation.authentication],
        "parameters": [
            *_path_parameters(operation),
            *_query_parameters(operation),
            *_header_parameters(operation),
        ],
        "responses": _answers(operation, names) | describe_errors(operation),
    }
    body = _body(operation, names)
    if body is not None:
        described["requestBody"] = body
    return described


def _path_parameters(operation: Operation) -> Iterable[dict[str, Any]]:
    for converter, name in _PATH_PARAMETER.findall(operation.path):
        yield {
            "name": to_camel(name),
            "in": "path",
            "required": True,
            "schema": _PATH_SCHEMAS[converter or None],
        }


def _query_parameters(operation: Operation) -> Iterable[dict[str, Any]]:
    if operation.query is None:
        return
    shape = operation.query.model_json_schema(by_alias=True)
    for name, schema in shape.get("properties", {}).items():
        plain = _without_null(dict(schema))
        required = name in shape.get("required", ()) or plain.pop(X_REQUIRED, False)
        described = {"name": name, "in": "query", "required": required, "schema": plain}
        if "description" in plain:
            described["description"] = plain.pop("description")
        plain.pop("title", None)
        yield described


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Describe an optional parameter as its value: in a query, absence is written by leaving it out."""
    choices = [choice for choice in schema.pop("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1:
        schema = choices[0] | schema
    if schema.get("default", 0) is None:
        del schema["default"]
    return schema


def _header_parameters(operation: Operation) -> Iterable[dict[str, Any]]:
    if operation.authentication is Authentication.CALLER:
        yield {
            "name": "Service-Usage-Attribution",
            "in": "header",
            "required": False,
            "description": "The signed header of the routed request, forwarded unchanged; omitted for own work.",
            "schema": {"type": "string", "pattern": r"^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$"},
        }
    if speaks_a2a(operation.path) and operation.authentication is Authentication.CALLER:
        yield from a2a_header_parameters(operation.path)
    if isinstance(operation.body, FilePart):
        yield {
            "name": "Prefer",
            "in": "header",
            "required": False,
            "description": "`respond-async`, or `wait=N` for the longest wait in seconds (RFC 7240).",
            "schema": {"type": "string", "pattern": r"^(respond-async|wait=[0-9]{1,3})$"},
        }


def _body(operation: Operation, names: Mapping[Any, str]) -> dict[str, Any] | None:
    if isinstance(operation.body, FilePart):
        part = {"type": "string", "format": "binary", "contentMediaType": "application/octet-stream"}
        form = {
            "type": "object",
            "properties": {"file": part},
            "required": ["file"],
            "additionalProperties": False,
        }
        return {"required": True, "content": {"multipart/form-data": {"schema": form}}}
    if isinstance(operation.body, FormBody):
        form = {
            "type": "object",
            "properties": {
                name: {"type": "string", "description": text} for name, text in operation.body.fields.items()
            },
            "required": list(operation.body.required),
            "additionalProperties": {"type": "string"},
        }
        return {"required": True, "content": {"application/x-www-form-urlencoded": {"schema": form}}}
    if isinstance(operation.body, JsonOrForm):
        return {"required": True, "content": _json_or_form(operation.body, names)}
    if isinstance(operation.body, RawBody):
        return {"required": True, "content": {media_type: {} for media_type in operation.body.media_types}}
    if operation.body is not None:
        return {
            "required": True,
            "content": {"application/json": {"schema": ref(names[operation.body, "validation"])}},
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


def _answers(operation: Operation, names: Mapping[Any, str]) -> dict[str, Any]:
    described: dict[str, Any] = {}
    for status, body in operation.answers.items():
        answer: dict[str, Any] = {"description": STATUS_MEANINGS.get(status, "Success.")}
        if isinstance(body, str):
            answer["content"] = {body: {}}
        elif body is not None:
            answer["content"] = {"application/json": {"schema": ref(names[body, "serialization"])}}
        if operation.links and status < _FIRST_REDIRECT:
            answer["links"] = {
                linked: {"operationId": linked, "parameters": dict(parameters)}
                for linked, parameters in operation.links.items()
            }
        described[str(status)] = answer
    return described


def _schemas(operations: Sequence[Operation]) -> tuple[dict[str, Any], dict[Any, str]]:
    models: list[tuple[type[BaseModel], Any]] = []
    for operation in operations:
        models += [(body, "serialization") for body in operation.answers.values() if isinstance(body, type)]
        if isinstance(operation.body, type):
            models.append((operation.body, "validation"))
        if isinstance(operation.body, JsonOrForm):
            models += [(shape, "validation") for shape in operation.body.json]
    unique = list(dict.fromkeys(models))
    references, document = models_json_schema(unique, by_alias=True, ref_template=REF)
    names = {key: reference["$ref"].rpartition("/")[2] for key, reference in references.items()}
    return document.get("$defs", {}), names
