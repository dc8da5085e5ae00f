"""The schemas that validate responses match the protocol's definition in the published package."""

from typing import Any

import jsonschema
import pytest
from a2a.types import a2a_pb2
from a2a.utils.errors import A2A_ERROR_MAPPING, ErrorMapping
from google.api.field_behavior_pb2 import REQUIRED, field_behavior
from google.protobuf.descriptor import Descriptor

from shared.a2a import types
from tests.contracts.a2a.schemas import DEFINITIONS, STATES, check
from web.error_responses.a2a_errors import PROTOCOL_DOMAIN, error_body

MESSAGES: dict[str, Descriptor] = {
    name: a2a_pb2.DESCRIPTOR.message_types_by_name[name]
    for name in DEFINITIONS
    if name in a2a_pb2.DESCRIPTOR.message_types_by_name
}
OURS = {name: getattr(types, name) for name in MESSAGES if hasattr(types, name)}
_CODES = {"INVALID_REQUEST": "malformed_request", "METHOD_NOT_FOUND": "not_found"}
NARROWED = {"OAuthFlows", "SecurityScheme"}
"""One-ofs of which this service uses only some members."""


def required(descriptor: Descriptor) -> set[str]:
    return {
        field.json_name
        for field in descriptor.fields
        if REQUIRED in field.GetOptions().Extensions[field_behavior]
    }


@pytest.mark.parametrize("name", MESSAGES)
def test_a_schema_has_the_members_of_its_message(name: str) -> None:
    members = {field.json_name for field in MESSAGES[name].fields}
    described = set(DEFINITIONS[name]["properties"])
    assert described <= members if name in NARROWED else described == members


@pytest.mark.parametrize("name", MESSAGES)
def test_a_schema_requires_what_the_definition_requires(name: str) -> None:
    assert required(MESSAGES[name]) <= set(DEFINITIONS[name]["required"]) | {"append"}


@pytest.mark.parametrize("name", MESSAGES)
def test_one_of_several_members_is_one_of_in_the_schema(name: str) -> None:
    groups = [
        {field.json_name for field in group.fields}
        for group in MESSAGES[name].oneofs
        if len(group.fields) > 1
    ]
    described = [{choice["required"][0] for choice in DEFINITIONS[name].get("oneOf", [])}]
    if groups:
        assert described[0] <= groups[0] if name in NARROWED else described == groups


@pytest.mark.parametrize("name", OURS)
def test_product_types_write_only_members_of_the_definition(name: str) -> None:
    written = {OURS[name].wire_name(field) for field in OURS[name].model_fields}
    assert written <= {field.json_name for field in MESSAGES[name].fields}


def test_the_states_and_roles_are_the_definitions() -> None:
    declared = a2a_pb2.DESCRIPTOR.enum_types_by_name
    states = {value.name for value in declared["TaskState"].values}
    assert states - {"TASK_STATE_UNSPECIFIED"} == set(STATES) == {state.value for state in types.TaskState}
    roles = {value.name for value in declared["Role"].values}
    assert roles - {"ROLE_UNSPECIFIED"} == {role.value for role in types.MessageRole}


@pytest.mark.parametrize("known", A2A_ERROR_MAPPING.values(), ids=lambda known: known.reason)
def test_errors_have_the_statuses_and_names_that_clients_know(known: ErrorMapping) -> None:
    code = _CODES.get(known.reason, known.reason.lower())
    body = error_body(known.http_code, code, "x", request="", host="service.example")["error"]
    assert (body["code"], body["status"]) == (known.http_code, known.grpc_status)
    assert body["details"][0]["reason"] == known.reason
    assert body["details"][0]["domain"] == PROTOCOL_DOMAIN


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("Part", {}),
        ("Part", {"text": "a", "url": "b"}),
        ("Part", {"text": None}),
        ("Message", {"messageId": "1", "role": "ROLE_USER", "parts": []}),
        ("Message", {"messageId": "1", "role": "user", "parts": [{"text": "x"}]}),
        ("Task", {"id": "1", "status": {"state": "TASK_STATE_WORKING"}, "artifacts": []}),
        ("Task", {"id": "1", "status": {"state": "TASK_STATE_WORKING"}, "kind": "task"}),
        ("StreamResponse", {"task": {}, "message": {}}),
        ("Error", {"error": {"code": 404, "status": "NOT_FOUND", "message": "x", "details": []}}),
    ],
)
def test_the_schemas_find_what_is_wrong(name: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        check(name, wrong)
