"""Have werkzeug compile what builds an address when one is built.

It compiles two functions for each route of an application, which takes most of the time of making one. The service
builds no addresses, and the tests make an application a module and a front.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from werkzeug.routing import Rule

_compile = Rule._compile_builder


def build_addresses_lazily() -> None:
    """Do so for applications that this process makes from now on."""
    Rule._compile_builder = _compile_when_built  # type: ignore[method-assign, assignment]


def _compile_when_built(rule: Rule, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
    @cache
    def compiled() -> Callable[..., tuple[str, str]]:
        return _compile(rule, append_unknown)

    def build(*arguments: Any, **values: Any) -> tuple[str, str]:
        return compiled()(*arguments, **values)

    return build
