"""Render a template as a page, under a policy that lets it load our stylesheet and nothing else."""

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
    "default-src 'none'; style-src 'self'; img-src 'self' data:; "
    "form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)
_PACKAGES = ("web.pages", "web.openapi")
_CODE = re.compile(r"`([^`]+)`")
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
}


def page(template: str, **context: Any) -> Response:
    """Answer with a page."""
    text = (
        _environment()
        .get_template(template)
        .render(
            base_url=current_app.config["BASE_URL"],
            version=version(),
            stylesheet=f"/static/{fingerprint()}/{STYLESHEET}",
            **context,
        )
    )
    return Response(text, content_type=f"{HTML}; charset=utf-8", headers=_HEADERS)


@cache
def version() -> str:
    """Name the release that serves."""
    return metadata.version("quartermaster")


@cache
def stylesheet() -> bytes:
    """Give the stylesheet."""
    return (resources.files("web.pages") / "static" / STYLESHEET).read_bytes()


@cache
def fingerprint() -> str:
    """Name this state of the stylesheet, so that browsers may keep it."""
    return hashlib.sha256(stylesheet()).hexdigest()[:16]


def prose(text: str) -> Markup:
    """Write a description in HTML: what stands between backticks is code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 (escaped just before)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in _PACKAGES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["prose"] = prose
    return environment
