"""A web process that accepts one message and can be killed, for `tests.support.processes.killable_processes`."""

from typing import Any

from shared.config.settings import Settings
from web.app import create_app
from web.dependencies.services import build_services


def take(settings: Settings, path: str, headers: dict[str, str], body: dict[str, Any]) -> None:
    """Accept one message."""
    services = build_services(settings)
    create_app(settings, services).test_client().post(path, headers=headers, json=body)
