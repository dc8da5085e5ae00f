"""The curl command of an operation.

It has the required parameters and the body, and shell variables for the reader's values.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from web.openapi.reference import Document, resolve

_BEARERS = frozenset({"bearer", "distribution"})
_EXAMPLES: Mapping[str, Any] = {"integer": 1, "number": 1, "boolean": False, "array": [], "object": {}}


def curl(document: Document, operation: Mapping[str, Any]) -> str:
    """Return the curl command, with `$base`, `$token` and a shell variable for each required parameter."""
    parameters = [resolve(document, at) for at in operation["parameters"]]
    required = [at["name"] for at in parameters if at["in"] == "query" and at["required"]]
    # Use a shell variable for each value, so that the reader can paste the command and run it.
    query = "&".join(f"{name}=${{{name}}}" for name in required)
    path = operation["path"].replace("{", "${")
    method = "" if operation["method"] == "GET" else f"-X {operation['method']} "
    address = f'curl {method}"$base{path}{"?" if query else ""}{query}"'
    return " \\\n  ".join([address, *_credential(operation), *_body(document, operation)])


def _credential(operation: Mapping[str, Any]) -> Iterator[str]:
    if any(_BEARERS & set(scheme) for scheme in operation.get("security", ())):
        yield '-H "Authorization: Bearer $token"'


def _body(document: Document, operation: Mapping[str, Any]) -> Sequence[str]:
    content = operation.get("requestBody", {}).get("content", {})
    if "application/json" in content:
        example = example_of(document, content["application/json"].get("schema", {}))
        return ("-H 'Content-Type: application/json'", f"-d '{json.dumps(example, ensure_ascii=False)}'")
    if "multipart/form-data" in content:
        # Set the media type, because the part must have one, and curl knows it for few files.
        return ('-F "file=@report.pdf;type=application/pdf"',)
    return ()


def example_of(document: Document, schema: Mapping[str, Any]) -> Any:
    """Return an example value that satisfies a schema."""
    resolved = resolve(document, schema)
    if "const" in resolved or "enum" in resolved:
        return resolved.get("const", resolved.get("enum", [None])[0])
    if "properties" in resolved:
        properties = resolved["properties"]
        return {name: example_of(document, properties.get(name, {})) for name in resolved.get("required", ())}
    # Use the first alternative: one is enough for an example, and the page lists all alternatives.
    choices = resolved.get("anyOf") or resolved.get("oneOf")
    if choices:
        return example_of(document, choices[0])
    return _EXAMPLES.get(str(resolved.get("type")), "…")
