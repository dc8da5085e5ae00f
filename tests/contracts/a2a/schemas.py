"""JSON Schemas of A2A 1.0's objects, stricter than a server must be: unknown keys are refused.

Written from the protocol's definition (`lf.a2a.v1`): required members, one-ofs, names of enums, times with `Z`. Only
the value of a data part may be null. `test_definition.py` compares them with the descriptors of the published package.
"""

from typing import Any

import jsonschema

STATES = [
    f"TASK_STATE_{name}"
    for name in (
        "SUBMITTED",
        "WORKING",
        "COMPLETED",
        "FAILED",
        "CANCELED",
        "REJECTED",
        "INPUT_REQUIRED",
        "AUTH_REQUIRED",
    )
]
TEXT: dict[str, Any] = {"type": "string"}
NAME: dict[str, Any] = {"type": "string", "minLength": 1}
FLAG: dict[str, Any] = {"type": "boolean"}
STRUCT: dict[str, Any] = {"type": "object"}
TIME: dict[str, Any] = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3}){0,3}Z$"}


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def some(items: dict[str, Any], *, minimum: int = 1) -> dict[str, Any]:
    """Return the schema of a list that is absent if it is empty, unless `minimum` permits an empty one."""
    return {"type": "array", "items": items, "minItems": minimum}


def shape(needed: dict[str, Any], /, **optional: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": needed | optional,
        "required": list(needed),
        "additionalProperties": False,
    }


def one_of(*, beside: dict[str, Any] | None = None, **choices: Any) -> dict[str, Any]:
    """Return the schema for exactly one of these members."""
    return shape({}, **choices, **(beside or {})) | {"oneOf": [{"required": [name]} for name in choices]}


DEFINITIONS: dict[str, Any] = {
    "Part": one_of(
        beside={"metadata": STRUCT, "filename": NAME, "mediaType": NAME},
        text=TEXT,
        raw={"type": "string", "pattern": r"^[A-Za-z0-9+/]*={0,2}$"},
        url=NAME,
        data={},
    ),
    "Message": shape(
        {"messageId": NAME, "role": {"enum": ["ROLE_USER", "ROLE_AGENT"]}, "parts": some(ref("Part"))},
        contextId=NAME,
        taskId=NAME,
        metadata=STRUCT,
        extensions=some(NAME),
        referenceTaskIds=some(NAME),
    ),
    "Artifact": shape(
        {"artifactId": NAME, "parts": some(ref("Part"))},
        name=TEXT,
        description=TEXT,
        metadata=STRUCT,
        extensions=some(NAME),
    ),
    "TaskStatus": shape({"state": {"enum": STATES}}, message=ref("Message"), timestamp=TIME),
    "Task": shape(
        {"id": NAME, "status": ref("TaskStatus")},
        contextId=NAME,
        artifacts=some(ref("Artifact")),
        history=some(ref("Message")),
        metadata=STRUCT,
    ),
    "TaskStatusUpdateEvent": shape(
        {"taskId": NAME, "contextId": NAME, "status": ref("TaskStatus")}, metadata=STRUCT
    ),
    "TaskArtifactUpdateEvent": shape(
        {"taskId": NAME, "contextId": NAME, "artifact": ref("Artifact")},
        append=FLAG,
        lastChunk=FLAG,
        metadata=STRUCT,
    ),
    "StreamResponse": one_of(
        task=ref("Task"),
        message=ref("Message"),
        statusUpdate=ref("TaskStatusUpdateEvent"),
        artifactUpdate=ref("TaskArtifactUpdateEvent"),
    ),
    "SendMessageResponse": one_of(task=ref("Task"), message=ref("Message")),
    "ListTasksResponse": shape(
        {
            "tasks": some(ref("Task"), minimum=0),
            "nextPageToken": TEXT,
            "pageSize": {"type": "integer"},
            "totalSize": {"type": "integer"},
        }
    ),
    "AuthenticationInfo": shape({"scheme": NAME}, credentials=TEXT),
    "TaskPushNotificationConfig": shape(
        {"url": NAME},
        tenant=TEXT,
        id=NAME,
        taskId=NAME,
        token=TEXT,
        authentication=ref("AuthenticationInfo"),
    ),
    "ListTaskPushNotificationConfigsResponse": shape(
        {"configs": some(ref("TaskPushNotificationConfig"), minimum=0), "nextPageToken": TEXT}
    ),
    "AgentInterface": shape({"url": NAME, "protocolBinding": NAME, "protocolVersion": NAME}, tenant=TEXT),
    "AgentProvider": shape({"url": NAME, "organization": NAME}),
    "AgentExtension": shape({}, uri=NAME, description=TEXT, required=FLAG, params=STRUCT),
    "AgentCapabilities": shape(
        {},
        streaming=FLAG,
        pushNotifications=FLAG,
        extensions=some(ref("AgentExtension")),
        extendedAgentCard=FLAG,
    ),
    "StringList": shape({}, list=some(TEXT, minimum=0)),
    "SecurityRequirement": shape({}, schemes={"type": "object", "additionalProperties": ref("StringList")}),
    "APIKeySecurityScheme": shape({"location": NAME, "name": NAME}, description=TEXT),
    "HTTPAuthSecurityScheme": shape({"scheme": NAME}, description=TEXT, bearerFormat=TEXT),
    "ClientCredentialsOAuthFlow": shape({"tokenUrl": NAME, "scopes": STRUCT}, refreshUrl=TEXT),
    "OAuthFlows": one_of(clientCredentials=ref("ClientCredentialsOAuthFlow")),
    "OAuth2SecurityScheme": shape({"flows": ref("OAuthFlows")}, description=TEXT, oauth2MetadataUrl=TEXT),
    "SecurityScheme": one_of(
        apiKeySecurityScheme=ref("APIKeySecurityScheme"),
        httpAuthSecurityScheme=ref("HTTPAuthSecurityScheme"),
        oauth2SecurityScheme=ref("OAuth2SecurityScheme"),
    ),
    "AgentSkill": shape(
        {"id": NAME, "name": NAME, "description": NAME, "tags": some(TEXT)},
        examples=some(TEXT),
        inputModes=some(NAME),
        outputModes=some(NAME),
        securityRequirements=some(ref("SecurityRequirement")),
    ),
    "AgentCard": shape(
        {
            "name": NAME,
            "description": NAME,
            "supportedInterfaces": some(ref("AgentInterface")),
            "version": NAME,
            "capabilities": ref("AgentCapabilities"),
            "defaultInputModes": some(NAME),
            "defaultOutputModes": some(NAME),
            "skills": some(ref("AgentSkill"), minimum=0),
        },
        provider=ref("AgentProvider"),
        documentationUrl=NAME,
        securitySchemes={"type": "object", "additionalProperties": ref("SecurityScheme")},
        securityRequirements=some(ref("SecurityRequirement")),
        iconUrl=NAME,
        signatures=some(STRUCT),
    ),
    "ErrorInfo": shape(
        {
            "@type": {"const": "type.googleapis.com/google.rpc.ErrorInfo"},
            "reason": {"type": "string", "pattern": "^[A-Z][A-Z0-9_]+[A-Z0-9]$"},
            "domain": NAME,
            "metadata": {"type": "object", "additionalProperties": TEXT},
        }
    ),
    "BadRequest": shape(
        {
            "@type": {"const": "type.googleapis.com/google.rpc.BadRequest"},
            "fieldViolations": some(shape({"field": NAME, "description": NAME})),
        }
    ),
    "Status": shape(
        {
            "code": {"type": "integer", "minimum": 400, "maximum": 599},
            "status": {"type": "string", "pattern": "^[A-Z_]+$"},
            "message": NAME,
            "details": {
                "type": "array",
                "prefixItems": [ref("ErrorInfo")],
                "items": ref("BadRequest"),
                "minItems": 1,
            },
        }
    ),
    "Error": shape({"error": ref("Status")}),
}


def check(name: str, value: object) -> None:
    """Raise jsonschema's ValidationError unless a value has this shape."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": DEFINITIONS, **ref(name)}
    jsonschema.Draft202012Validator(schema).validate(value)
