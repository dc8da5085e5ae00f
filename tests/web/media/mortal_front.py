"""A web process that receives one push and may be killed; for `tests.support.processes.killable_processes`."""

from typing import Any

from shared.config.settings import Settings
from web.app import create_app
from web.dependencies.services import build_services


def take(settings: Settings, path: str, headers: dict[str, str], options: dict[str, Any]) -> None:
    """Receive one push with the body that `options` contain."""
    services = build_services(settings)
    create_app(settings, services).test_client().post(path, headers=headers, **options)
