"""A front in a process of its own, which takes one push; for `tests.support.mortals`."""

from typing import Any

from shared.config.settings import Settings
from web.app import create_app
from web.dependencies.services import build_services


def take(settings: Settings, path: str, headers: dict[str, str], options: dict[str, Any]) -> None:
    """Take one push, whose body `options` give."""
    services = build_services(settings)
    create_app(settings, services).test_client().post(path, headers=headers, **options)
