"""The real web application over this module's database and the run's Valkey, called through werkzeug's client.

`front.get("/admin/me", person.authorization)` and the like send requests. `front.identity` creates organizations,
people, deployments and their credentials. `open_front` creates an application with other settings.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from wsgiref.types import WSGIEnvironment

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.exceptions import HTTPException
from werkzeug.test import Client, TestResponse

from deploy.embedded.valkey import EmbeddedValkey
from shared.config.settings import Settings
from tests.support.data.identity import IdentityFactory, make_settings
from tests.support.processes.lazy_url_rules import build_addresses_lazily
from tests.support.servers.stores import open_any_store
from tests.support.web.checked_responses import Given, find_undocumented
from web.app import create_app
from web.dependencies.services import Services, build_services

BASE_URL = "http://localhost"
LOCAL_EGRESS: Mapping[str, object] = {"egress_allow_private": True, "egress_allow_http": True}
"""With these, what is asked of outside may be on this host."""
build_addresses_lazily()


class ReadingClient(FlaskClient):
    """Reads every response to its end at once unless told otherwise: an unread one occupies its slots.

    Each response is checked against the OpenAPI document.
    """

    def open(self, *arguments: Any, buffered: bool = True, **options: Any) -> TestResponse:
        """Send a request."""
        answer = super().open(*arguments, buffered=buffered, **options)
        undocumented = find_undocumented(
            Given(
                method=answer.request.method,
                rule=self._find_rule(answer.request.environ),
                status=answer.status_code,
                headers=dict(answer.headers),
                body=answer.get_data() if buffered else None,
            )
        )
        assert undocumented is None, undocumented
        return answer

    def _find_rule(self, environ: WSGIEnvironment) -> str | None:
        try:
            rule, _ = self.application.url_map.bind_to_environ(environ).match(return_rule=True)
        except HTTPException:
            return None
        return str(rule.rule)


@dataclass(frozen=True, kw_only=True)
class Front:
    """The application, its parts, and a factory of its callers."""

    app: Flask
    client: Client
    services: Services
    settings: Settings
    identity: IdentityFactory

    def ask(self, method: str, path: str, authorization: str | None = None, **options: Any) -> TestResponse:
        """Send one request; `headers`, `json`, `data` and other options are those of werkzeug's client."""
        headers: Mapping[str, str] = options.pop("headers", {})
        if authorization is not None:
            headers = {**headers, "Authorization": authorization}
        return self.client.open(path, method=method, headers=headers, **options)

    def get(self, path: str, authorization: str | None = None, **options: Any) -> TestResponse:
        return self.ask("GET", path, authorization, **options)

    def post(self, path: str, authorization: str | None = None, **options: Any) -> TestResponse:
        return self.ask("POST", path, authorization, **options)

    def put(self, path: str, authorization: str | None = None, **options: Any) -> TestResponse:
        return self.ask("PUT", path, authorization, **options)

    def patch(self, path: str, authorization: str | None = None, **options: Any) -> TestResponse:
        return self.ask("PATCH", path, authorization, **options)

    def delete(self, path: str, authorization: str | None = None, **options: Any) -> TestResponse:
        return self.ask("DELETE", path, authorization, **options)


@contextmanager
def open_front(database_url: str, valkey_url: str, directory: Path, **settings: object) -> Iterator[Front]:
    """Create an application without caches and without delays after failed credentials, unless `settings` differ.

    With `any_store`, its store may differ from the one that the database records.
    """
    any_store = bool(settings.pop("any_store", False))
    loaded = make_settings(
        **{
            "database_url": database_url,
            "redis_url": valkey_url,
            "blob_store": directory.as_uri(),
            "base_url": BASE_URL,
            "failed_logins_per_minute": 0,
            **settings,
        }
    )
    services = build_services(loaded)
    if any_store:
        services = replace(services, blobs=open_any_store(loaded))
    app = create_app(loaded, services)
    app.test_client_class = ReadingClient
    try:
        yield Front(
            app=app,
            client=app.test_client(),
            services=services,
            settings=loaded,
            identity=IdentityFactory(services.database, loaded),
        )
    finally:
        services.running.close()
        services.models.invoker.leases.close()
        services.models.invoker.replies.close()
        services.database.dispose()
        services.valkey.close()


@pytest.fixture(scope="module")
def front_settings() -> Mapping[str, object]:
    """Return the application settings of a module; a module overrides this fixture to change them."""
    return {}


@pytest.fixture(scope="module")
def front(
    database_url: str,
    valkey_server: EmbeddedValkey,
    tmp_path_factory: pytest.TempPathFactory,
    front_settings: Mapping[str, object],
) -> Iterator[Front]:
    """Yield an application for this module."""
    directory = tmp_path_factory.mktemp("blobs")
    with open_front(database_url, valkey_server.url, directory, **front_settings) as front:
        yield front
