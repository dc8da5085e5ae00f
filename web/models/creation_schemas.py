"""What the model routes are sent: the shapes that the dialects check, described for readers of the API.

Never instantiated: the dialects read the body, because what they do not know they pass on.
"""

from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from shared.models.dialects.chat_requests import CHAT
from shared.models.dialects.requests import MODEL_CHOICE_FIELDS
from shared.models.dialects.responses_requests import RESPONSES
from shared.models.dialects.shapes import Schema, schema_of

_NOT: Schema = {"anyOf": [{"const": False}, {"type": "null"}]}
_NOT_CHOSEN: dict[str, Schema] = {
    name: {"type": "null", "description": "No other model answers than the one that `model` names."}
    for name in MODEL_CHOICE_FIELDS
}
_NOT_STORED: dict[str, Schema] = {
    "store": {"const": False, "description": "Nothing is stored: `false`."},
    "previous_response_id": {"type": "null"},
    "conversation": {"type": "null"},
    "background": _NOT,
}


class ChatCreation(BaseModel):
    """A chat completion request. What is not described is passed on to the model's provider."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        """Describe what the dialect checks."""
        return _described(cls, schema_of(CHAT), {**_NOT_CHOSEN, "store": _NOT})


class ResponsesCreation(BaseModel):
    """A stateless Responses request. What is not described is passed on to the model's provider."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        """Describe what the dialect checks."""
        schema = _described(cls, schema_of(RESPONSES), {**_NOT_CHOSEN, **_NOT_STORED})
        return schema | {"required": [*schema["required"], "store"]}


def _described(shape: type[BaseModel], schema: Schema, properties: dict[str, Any]) -> Schema:
    text = {"title": shape.__name__, "description": shape.__doc__}
    return {**text, **schema, "properties": {**schema["properties"], **properties}}
