"""A function that models may call, and a schema for structured output."""

from typing import Any

from pydantic import BaseModel

WEATHER_FUNCTION: dict[str, Any] = {
    "name": "weather",
    "description": "Tell the weather.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


class City(BaseModel):
    """Structured output."""

    name: str
    people: int
