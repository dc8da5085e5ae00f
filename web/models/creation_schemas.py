"""Request models of the model routes. The models only describe the bodies in OpenAPI.

The models are never instantiated: the dialects parse the bodies, because they pass unknown fields on.
"""

from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from shared.models.dialects.chat_requests import CHAT
from shared.models.dialects.requests import MODEL_CHOICE_FIELDS
from shared.models.dialects.responses_requests import RESPONSES
from shared.models.dialects.shapes import Schema, schema_of

# False, null and an absent field mean the same, and clients send all three.
_NOT: Schema = {"anyOf": [{"const": False}, {"type": "null"}]}
_NOT_CHOSEN: dict[str, Schema] = {
    name: {"type": "null", "description": "Only the model in `model` is called, never another one."}
    for name in MODEL_CHOICE_FIELDS
}
_NOT_STORED: dict[str, Schema] = {
    "store": {"const": False, "description": "Must be `false`: responses are not stored."},
    "previous_response_id": {"type": "null"},
    "conversation": {"type": "null"},
    "background": _NOT,
}


class ChatCreation(BaseModel):
    """A chat completion request. Fields that are not described are passed on to the model's provider."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        """Return the JSON schema by which the dialect checks the body."""
        return _described(cls, schema_of(CHAT), {**_NOT_CHOSEN, "store": _NOT})


class ResponsesCreation(BaseModel):
    """A stateless Responses request. Fields that are not described are passed on to the model's provider."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        """Return the JSON schema by which the dialect checks the body."""
        schema = _described(cls, schema_of(RESPONSES), {**_NOT_CHOSEN, **_NOT_STORED})
        # Require `store`: its default in the original API is true, so an absent field would promise storage.
        return schema | {"required": [*schema["required"], "store"]}


def _described(shape: type[BaseModel], schema: Schema, properties: dict[str, Any]) -> Schema:
    text = {"title": shape.__name__, "description": shape.__doc__}
    return {**text, **schema, "properties": {**schema["properties"], **properties}}
