"""Have werkzeug compile the URL builder of a route only when a URL is built.

werkzeug compiles two functions for each route, which takes most of the time to create an application. The service
builds no URLs, and the tests create an application for each module.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from werkzeug.routing import Rule

_compile = Rule._compile_builder


def build_addresses_lazily() -> None:
    """Patch werkzeug for all applications that this process creates from now on."""
    Rule._compile_builder = _compile_when_built  # type: ignore[method-assign, assignment]


def _compile_when_built(rule: Rule, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
    @cache
    def compiled() -> Callable[..., tuple[str, str]]:
        return _compile(rule, append_unknown)

    def build(*arguments: Any, **values: Any) -> tuple[str, str]:
        return compiled()(*arguments, **values)

    return build
