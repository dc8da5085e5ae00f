"""Serve the pages and assets of the built guide. Each page has a policy that allows the scripts in that page."""

import base64
import hashlib
import mimetypes
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path

from flask import Response
from werkzeug.exceptions import NotFound

from web.framework.authentication import Authentication
from web.framework.calls import RequestContext
from web.framework.rendering import HTML, POLICY, page_headers
from web.framework.routes import AnyQuery, Content, Routes

routes = Routes("guide")

_SITE = Path(str(resources.files("web.guide") / "site"))
_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
_NOT_BUILT = "This installation has no guide. Run `make guide` and restart the service."
_TYPES = (HTML, "text/css", "text/javascript", "application/json", "image/png")
_RESPONSES: Mapping[int, Content] = {200: dict.fromkeys(_TYPES), 308: None}
_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; connect-src 'self'; worker-src 'self'; "
    "form-action 'none'; frame-ancestors 'none'; base-uri 'none'; script-src 'self'"
)


@routes.route(
    "GET",
    "/docs/guide/",
    summary="Get the first page of the guide",
    authentication=Authentication.PUBLIC,
    query=AnyQuery,
    responses=_RESPONSES,
    hidden=True,
)
def guide(call: RequestContext) -> Response:
    return _serve(call, "")


@routes.route(
    "GET",
    "/docs/guide/<path:path>",
    summary="Get a page of the guide or one of its assets",
    authentication=Authentication.PUBLIC,
    query=AnyQuery,
    responses=_RESPONSES,
    hidden=True,
)
def guide_page(call: RequestContext, path: str) -> Response:
    return _serve(call, path)


def _serve(call: RequestContext, path: str) -> Response:
    if not _files():
        raise NotFound(_NOT_BUILT)
    if path in _files():
        return _respond(path)
    page = f"{path.rstrip('/')}/index.html".lstrip("/")
    if page not in _files():
        raise NotFound("The guide has no page at this address. Search it from its first page, /docs/guide/.")
    # The links of a page are relative to its folder, so its address must end in a slash.
    if call.http.path.endswith("/"):
        return _respond(page)
    return Response(status=308, headers={"Location": f"{call.http.path}/"})


def _respond(path: str) -> Response:
    media_type = mimetypes.guess_type(path)[0] or "application/octet-stream"
    # Only pages run scripts, so any other file gets the policy that allows no script.
    policy = _policy(path) if media_type == HTML else POLICY
    # The paths have no fingerprint, so cache them briefly: a new release must replace them soon.
    headers = {**page_headers(policy), "Cache-Control": "public, max-age=300"}
    return Response(_read(path), mimetype=media_type, headers=headers)


@cache
def _files() -> frozenset[str]:
    """Return the paths of all files of the site.

    Only these paths are read, so no request can read a file outside the folder.
    """
    return frozenset(str(file.relative_to(_SITE)) for file in _SITE.rglob("*") if file.is_file())


def _read(path: str) -> bytes:
    return (_SITE / path).read_bytes()


@cache
def _policy(path: str) -> str:
    """Return a policy that allows the inline scripts of the page. The policy lists the digest of each script."""
    # Allow scripts by digest: the site generator writes inline scripts, and `unsafe-inline` would allow any
    # script.
    digests = (hashlib.sha256(script).digest() for script in _SCRIPT.findall(_read(path)))
    return " ".join([_POLICY, *(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)])
