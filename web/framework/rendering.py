"""Render templates as pages, under a content security policy that only allows this service's own assets."""

import hashlib
import re
from functools import cache
from importlib import metadata, resources
from typing import Any

from flask import Response, current_app
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

HTML = "text/html"
STYLESHEET = "quartermaster.css"
POLICY = (
    # Allow no inline script or style: markup that slips through escaping then cannot run.
    "default-src 'none'; style-src 'self'; img-src 'self' data:; "
    "form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)
# Every file that pages load, and the package whose `static` folder contains the file.
ASSETS = {
    STYLESHEET: "web.pages",
    "htmx-2.0.11.min.js": "web.console",
    "live.js": "web.console",
    "playground.js": "web.console",
}
_PACKAGES = ("web.pages", "web.openapi", "web.console")
_CODE = re.compile(r"`([^`]+)`")
_MEDIA_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
_HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
}


def page(template: str, *, policy: str = POLICY, status: int = 200, **context: Any) -> Response:
    """Return a page as a response."""
    text = render(template, base_url=current_app.config["BASE_URL"], **context)
    return Response(text, status, content_type=f"{HTML}; charset=utf-8", headers=page_headers(policy))


def page_headers(policy: str = POLICY) -> dict[str, str]:
    """Return the security headers of a page."""
    return {"Content-Security-Policy": policy, **_HEADERS}


def render(template: str, **context: Any) -> str:
    """Return a rendered template."""
    return (
        _environment()
        .get_template(template)
        .render(version=version(), stylesheet=asset_path(STYLESHEET), **context)
    )


@cache
def version() -> str:
    """Return the version of the running release."""
    return metadata.version("quartermaster")


@cache
def asset(name: str) -> bytes:
    """Return the bytes of an asset."""
    return (resources.files(ASSETS[name]) / "static" / name).read_bytes()


@cache
def fingerprint(name: str) -> str:
    """Return a fingerprint of an asset's content. The asset's URL contains it, so browsers can cache the asset."""
    return hashlib.sha256(asset(name)).hexdigest()[:16]


def asset_path(name: str) -> str:
    """Return the path of an asset's URL."""
    return f"/static/{fingerprint(name)}/{name}"


def media_type(name: str) -> str:
    """Return the media type of an asset."""
    return _MEDIA_TYPES[name[name.rindex(".") :]]


def prose(text: str) -> Markup:
    """Return a description as HTML, with text between backticks as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 (escaped just before)


def add_filters(**filters: Any) -> None:
    """Add filters that all templates can use."""
    _environment().filters.update(filters)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in _PACKAGES]),
        autoescape=True,
        # With StrictUndefined, a misspelled variable raises an error instead of leaving a gap on the page.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["prose"] = prose
    environment.globals["asset_path"] = asset_path
    return environment
