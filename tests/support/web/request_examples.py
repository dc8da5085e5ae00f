"""A valid request for any operation of the OpenAPI document, generated from its schemas.

It passes validation, so that a test reaches the code behind it. A test supplies bodies whose meaning no schema states.
"""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

CONTENT = b"content"
_BOUNDARY = "bd-7f3a"
_BY_FORMAT = {"date-time": "2100-01-01T00:00:00Z", "uri": "https://example.org/"}
_BY_NAME = {
    "email": "nobody@example.org",
    "byteSize": len(CONTENT),
    "cron": "0 9 * * *",
    "networks": ["slack"],
}


class RequestExamples:
    """The requests that one document describes."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def query(self, operation: Mapping[str, Any]) -> dict[str, str]:
        """Return the required query parameters."""
        return {
            parameter["name"]: str(self._value(parameter["schema"], parameter["name"]))
            for parameter in operation["parameters"]
            if parameter.get("in") == "query" and parameter["required"]
        }

    def body(self, operation: Mapping[str, Any], given: Any = None) -> dict[str, Any]:
        """Return the body as options of werkzeug's client; JSON in `given` replaces generated values."""
        content = operation.get("requestBody", {}).get("content", {})
        if given is not None:
            return {"json": given}
        if "application/json" in content:
            return {"json": self._value(content["application/json"].get("schema", {"type": "object"}))}
        if "multipart/form-data" in content:
            return {"data": _form(), "content_type": f"multipart/form-data; boundary={_BOUNDARY}"}
        if "application/x-www-form-urlencoded" in content:
            return {"data": self._value(content["application/x-www-form-urlencoded"]["schema"])}
        return {}

    def _value(self, schema: Mapping[str, Any], name: str = "") -> Any:
        if "$ref" in schema:
            return self._value(self._resolved(schema["$ref"]), name)
        if name in _BY_NAME:
            return _BY_NAME[name]
        for key in ("const", "default"):
            if schema.get(key) is not None:
                return schema[key]
        if "enum" in schema:
            return schema["enum"][0]
        for key in ("anyOf", "oneOf", "allOf"):
            if key in schema:
                chosen = [choice for choice in schema[key] if choice.get("type") != "null"]
                return self._value(chosen[0], name)
        return self._plain(schema)

    def _plain(self, schema: Mapping[str, Any]) -> Any:
        kind = schema.get("type")
        if kind == "object":
            properties = schema.get("properties", {})
            return {name: self._value(properties.get(name, {}), name) for name in schema.get("required", ())}
        if kind == "array":
            return [self._value(schema.get("items", {}))]
        if kind in ("integer", "number"):
            return schema.get("minimum", 1)
        if kind == "boolean":
            return True
        if schema.get("format") == "uuid":
            return str(uuid4())
        if schema.get("examples"):
            return schema["examples"][0]
        return _BY_FORMAT.get(schema.get("format", ""), "x" * max(1, schema.get("minLength", 1)))

    def _resolved(self, reference: str) -> Any:
        at: Any = self._document
        for step in reference.removeprefix("#/").split("/"):
            at = at[step]
        return at


def _form() -> bytes:
    header = b'Content-Disposition: form-data; name="file"; filename="a.txt"\r\nContent-Type: text/plain'
    edge = _BOUNDARY.encode()
    return b"--" + edge + b"\r\n" + header + b"\r\n\r\n" + CONTENT + b"\r\n--" + edge + b"--\r\n"
