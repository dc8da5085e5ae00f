"""The OpenAPI document in the form that pages show: operations by tag, and the fields of requests and responses."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LISTED = re.compile(r"^- `([^`]+)`: (.*)$")
_BOUNDS = {
    "minimum": "from",
    "maximum": "to",
    "minLength": "characters from",
    "maxLength": "to",
    "multipleOf": "in steps of",
}
# The default bound of a JSON integer. Pages omit it, because it tells the reader nothing.
_LARGEST = (1 << 63) - 1
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A parameter, or a member of an object. `refers_to` names the schemas that the field contains."""

    name: str
    kind: str
    refers_to: Sequence[str]
    is_required: bool
    description: str
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The content of a media type: its schema, and the members if it is an object."""

    media_type: str
    kind: str
    refers_to: Sequence[str]
    fields: Sequence[Field]


def operations_by_tag(document: Document) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return all operations except HEAD, by tag. Each operation has its method and path."""
    tags: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for at in _operations(document):
        # Omit HEAD: it differs from GET only in its missing body.
        if at["method"] != "HEAD":
            tags[at["tags"][0]].append(at)
    return tags


def find_operation(document: Document, name: str) -> Mapping[str, Any] | None:
    """Return an operation by its `operationId`, or None."""
    return next((at for at in _operations(document) if at["operationId"] == name), None)


def parameters(document: Document, operation: Mapping[str, Any]) -> Sequence[Field]:
    """Return the parameters of an operation."""
    resolved = [resolve(document, parameter) for parameter in operation["parameters"]]
    return [
        Field(
            name=at["name"],
            place=at["in"],
            kind=kind(at["schema"]),
            refers_to=references(at["schema"]),
            is_required=at["required"],
            description=at.get("description", ""),
        )
        for at in resolved
    ]


def contents(document: Document, content: Mapping[str, Any]) -> Sequence[Shape]:
    """Return the content of a body or a response by media type."""
    return [
        Shape(
            media_type=media_type,
            kind=kind(described.get("schema", {})),
            refers_to=references(described.get("schema", {})),
            fields=members(document, described.get("schema", {})),
        )
        for media_type, described in content.items()
    ]


def members(document: Document, schema: Mapping[str, Any]) -> Sequence[Field]:
    """Return the members of an object."""
    resolved = resolve(document, schema)
    required = resolved.get("required", ())
    return [
        Field(
            name=name,
            kind=kind(at),
            refers_to=references(at),
            is_required=name in required,
            description=at.get("description", ""),
        )
        for name, at in resolved.get("properties", {}).items()
    ]


def resolve(document: Document, part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the target of a reference within the document, or `part` itself if it is not a reference."""
    reference = part.get("$ref")
    if reference is None:
        return part
    found: Any = document
    for step in reference.removeprefix("#/").split("/"):
        found = found[step]
    resolved: Mapping[str, Any] = found
    return resolved


def kind(schema: Mapping[str, Any]) -> str:
    """Return a description in words of the values that a schema allows.

    `references` returns the schemas that it contains.
    """
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        # Remove repetitions: several schemas may have the same words.
        return " or ".join(dict.fromkeys(map(kind, choices)))
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema or "const" in schema:
        return "one of " + ", ".join(f"`{value}`" for value in schema.get("enum") or [schema["const"]])
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items', {}))}"
    words = schema.get("type", "any value")
    return f"{words if isinstance(words, str) else ' or '.join(words)}{_narrowed(schema)}"


def references(schema: Mapping[str, Any]) -> Sequence[str]:
    """Return the names of the schemas that a schema refers to directly."""
    inner = [part.get("items", part) for part in (schema, *_choices(schema))]
    choices = [choice for part in inner for choice in (part, *_choices(part))]
    return list(dict.fromkeys(at["$ref"].rpartition("/")[2] for at in choices if "$ref" in at))


def codes(description: str) -> Sequence[tuple[str, str]]:
    """Return the error codes that the description of a response lists, with their meanings."""
    return [match.groups() for line in description.split("\n") if (match := _LISTED.match(line))]  # type: ignore[misc]


def _choices(schema: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [*schema.get("anyOf", ()), *schema.get("oneOf", ())]


def _narrowed(schema: Mapping[str, Any]) -> str:
    bounds = [
        f"{word} {schema[name]}"
        for name, word in _BOUNDS.items()
        if schema.get(name) not in (None, _LARGEST) and (name, schema.get(name)) != ("minLength", 0)
    ]
    parts = [*filter(None, [schema.get("format")]), *bounds]
    return f" ({', '.join(parts)})" if parts else ""


def _operations(document: Document) -> Iterator[Mapping[str, Any]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield {**operation, "method": method.upper(), "path": path}
