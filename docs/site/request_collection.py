"""Write the collection of requests for Bruno from the OpenAPI document: one request an operation, a folder a tag.

`make requests` writes it to dist/bruno: made of the code whenever it is asked for, it is never out of date.
"""

import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from web.app import ROUTES
from web.openapi.curl_commands import example_of
from web.openapi.document import describe
from web.openapi.reference import resolve

_AUTHORIZATIONS = {"bearer": "token", "distribution": "distributionToken"}
_MANIFEST = {
    "version": "1",
    "name": "Quartermaster",
    "type": "collection",
    "ignore": ["node_modules", ".git"],
}
_ENVIRONMENT = """vars {
  base: http://127.0.0.1:8080
}
vars:secret [
  token,
  distributionToken
]
"""
Document = Mapping[str, Any]


def write(folder: Path) -> None:
    """Write the whole collection anew."""
    shutil.rmtree(folder, ignore_errors=True)
    for path, text in collection().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def collection() -> dict[str, str]:
    """Give each file of the collection, by its path."""
    declared = [route for routes in ROUTES for route in routes.declared]
    document = json.loads(json.dumps(describe(declared, base_url="http://localhost", version="0")))
    files = {"bruno.json": json.dumps(_MANIFEST, indent=2) + "\n", "environments/local.bru": _ENVIRONMENT}
    counts: dict[str, int] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method in ("head", "options"):
                continue
            tag = operation["tags"][0]
            counts[tag] = counts.get(tag, 0) + 1
            name = f"{tag}/{operation['operationId']}.bru"
            files[name] = "\n".join(_request(document, method, path, operation, counts[tag]))
    return files


def _request(
    document: Document, method: str, path: str, operation: Mapping[str, Any], number: int
) -> Iterator[str]:
    parameters = [resolve(document, at) for at in operation.get("parameters", ())]
    body = dict(_body(document, operation))
    authorization = next(
        (
            _AUTHORIZATIONS[name]
            for at in operation.get("security", ())
            for name in at
            if name in _AUTHORIZATIONS
        ),
        None,
    )
    address = "{{base}}" + path.replace("{", "{{").replace("}", "}}")
    yield from _block("meta", [f"name: {operation['summary']}", "type: http", f"seq: {number}"])
    asked = [f"url: {address}", f"body: {next(iter(body), 'none')}"]
    yield from _block(method, [*asked, f"auth: {'bearer' if authorization else 'none'}"])
    in_query = [at for at in parameters if at["in"] == "query"]
    yield from _block("params:query", [f"{'' if at['required'] else '~'}{at['name']}: " for at in in_query])
    if authorization:
        yield from _block("auth:bearer", [f"token: {{{{{authorization}}}}}"])
    # A variable takes any place of a path; Bruno's own parameters only whole segments.
    yield from _block("vars:pre-request", [f"{at['name']}: " for at in parameters if at["in"] == "path"])
    for kind, lines in body.items():
        yield from _block({"json": "body:json", "multipartForm": "body:multipart-form"}[kind], lines)


def _body(document: Document, operation: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    content = operation.get("requestBody", {}).get("content", {})
    if "application/json" in content:
        shown = example_of(document, content["application/json"].get("schema", {}))
        yield "json", json.dumps(shown, indent=2, ensure_ascii=False).splitlines()
    elif "multipart/form-data" in content:
        yield "multipartForm", ["file: @file(report.pdf)"]


def _block(name: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield from (f"{name} {{", *(f"  {line}".rstrip() for line in lines), "}", "")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
