"""Check every response in tests against the OpenAPI document: status, media type, headers and body.

The in-process client calls `find_undocumented` for each response (`web_process.py`). Processes of the service that
pytest starts call it themselves and record violations (`tests/support/processes/checked_processes.py`).
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import quote

import jsonschema_rs

from tests.support.web.openapi_documents import openapi_document

URI = "urn:openapi"
UNNAMED = frozenset(
    {
        "access-control-allow-headers",
        "access-control-allow-methods",
        "access-control-allow-origin",
        "access-control-expose-headers",
        "access-control-max-age",
        "allow",
        "cache-control",
        "connection",
        "content-length",
        "content-security-policy",
        "content-type",
        "cross-origin-opener-policy",
        "cross-origin-resource-policy",
        "date",
        "pragma",
        "referrer-policy",
        "server",
        "transfer-encoding",
        "vary",
        "x-accel-buffering",
        "x-accel-redirect",
        "x-content-type-options",
        "x-robots-tag",
    }
)
"""Headers of transport, caching and protection, which a document of operations does not describe."""
UNKNOWN_ADDRESS = frozenset({204, 400, 404, 405, 429, 503})
_PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A response: `rule` is None if no operation has the URL, `body` None if it is not checked."""

    method: str
    rule: str | None
    status: int
    headers: Mapping[str, str]
    body: bytes | None


def prepare() -> None:
    """Read the document now, for processes that are forked from this one."""
    _operations()
    _registry()


def find_undocumented(given: Given) -> str | None:
    """Return what the document does not describe of a response, or None."""
    method, template = given.method.lower(), _template(given.rule)
    operation = _operations().get((template, method)) if template else None
    if operation is None:
        is_known = given.status in UNKNOWN_ADDRESS or _is_hidden(template)
        return None if is_known else f"{given.method} {template} is described nowhere: {given.status}"
    found = next(_findings(operation, template or "", given), None)
    return None if found is None else f"{given.method} {template} answered {given.status}: {found}"


def _findings(operation: Any, template: str, given: Given) -> Iterator[str]:
    answer = operation["responses"].get(str(given.status))
    if answer is None:
        yield f"this status is not described; {(given.body or b'')[:500]!r}"
        return
    known = {name.lower() for name in answer.get("headers", ())}
    for name in given.headers:
        if name.lower() not in known | UNNAMED:
            yield f"the header {name} is not described"
    media_type = given.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if given.method == "HEAD" or (not given.body and not media_type):
        return
    described = _find_media(answer.get("content", {}), media_type)
    if described is None:
        if given.body:
            yield f"the media type {media_type!r} is not described"
        return
    if given.body is not None:
        pointer = (template, given.method.lower(), str(given.status), described)
        yield from _check_body(pointer, described, given.body)


def _check_body(pointer: tuple[str, str, str, str], media_type: str, body: bytes) -> Iterator[str]:
    validator = _validator(*pointer)
    try:
        instances = [*_instances(media_type, body)]
    except ValueError:
        yield f"the body is not JSON: {body[:200]!r}"
        return
    for instance in instances:
        for error in validator.iter_errors(instance):
            at = "/".join(map(str, error.instance_path))
            yield f"{at or 'the body'} is not as described: {error.message[:500]}"


def _instances(media_type: str, body: bytes) -> Iterable[Any]:
    if media_type.endswith("json"):
        return [json.loads(body)]
    if media_type == "text/event-stream":
        return _events(body.decode())
    return []


def _events(text: str) -> Iterable[Any]:
    """Yield the data of each event, except for errors, which have the path's dialect, and the terminator."""
    for event in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in event.split("\n") if ": " in line)
        if "data" in lines and lines.get("event") != "error" and lines["data"] != "[DONE]":
            yield json.loads(lines["data"])


def _find_media(content: Mapping[str, Any], media_type: str) -> str | None:
    ranges = (media_type, f"{media_type.partition('/')[0]}/*", "*/*")
    return next((name for name in ranges if name in content), None)


@cache
def _validator(
    template: str, method: str, status: str, media_type: str
) -> jsonschema_rs.Draft202012Validator:
    steps = ("paths", template, method, "responses", status, "content", media_type, "schema")
    pointer = "/".join(quote(step.replace("~", "~0").replace("/", "~1"), safe="~") for step in steps)
    return jsonschema_rs.Draft202012Validator(
        {"$ref": f"{URI}#/{pointer}"}, registry=_registry(), validate_formats=True
    )


@cache
def _registry() -> jsonschema_rs.Registry:
    return jsonschema_rs.Registry([(URI, openapi_document())])


@cache
def _operations() -> Mapping[tuple[str, str], Any]:
    return {
        (path, method): operation
        for path, operations in openapi_document()["paths"].items()
        for method, operation in operations.items()
    }


@cache
def _template(rule: str | None) -> str | None:
    if rule is None:
        return None
    return _PARAMETER.sub(lambda match: "{" + _camel(match[1]) + "}", rule)


def _is_hidden(template: str | None) -> bool:
    return template is not None and template not in openapi_document()["paths"]


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
