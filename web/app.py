"""Build the web application: routes, error responses, and hooks around requests for ids, logs and metrics."""

import re
import time
from functools import cache
from http import HTTPStatus

from flask import Flask, Response, current_app, g, request
from prometheus_client import Counter, Histogram

from shared import failpoints
from shared.config.settings import Settings
from shared.observability.multiprocess_metrics import HostMetrics
from shared.observability.spans import HEADER, NO_SPAN, Span
from shared.observability.telemetry import (
    HTTP_REQUESTS,
    HTTP_SECONDS,
    bind_log_context,
    get_logger,
    reset_log_context,
)
from shared.observability.tracing import span, start_tracing, trace_id, traceparent
from shared.operations.health_checks import HealthChecks
from shared.operations.operations_port import OperationsPort
from shared.runtime.log_writer import configure_logging
from web.a2a.cors import add_cors_headers
from web.a2a.routes import ROUTES as AGENT_ROUTES
from web.console.routes import ROUTES as CONSOLE_ROUTES
from web.credits.budget_routes import ROUTES as BUDGET_ROUTES
from web.credits.routes import ROUTES as CREDIT_ROUTES
from web.dependencies.services import Services, build_services
from web.error_responses.anthropic_errors import REQUEST_ID_HEADER, is_anthropic_path
from web.error_responses.error_formats import Dialects
from web.error_responses.status_codes import register_error_handlers
from web.files.routes import ROUTES as FILE_ROUTES
from web.framework.calls import assign_request_id, request_id
from web.framework.deferred_responses import ResponsePlaceholder
from web.guide.routes import routes as guide_routes
from web.http.client_address import client_address
from web.http.converters import register_converters
from web.http.requests import MalformedRequest
from web.http.wsgi_middleware import wrap_application
from web.identity.routes import ROUTES as IDENTITY_ROUTES
from web.inbound.messages import routes as message_routes
from web.media.imports import routes as import_routes
from web.media.installations import routes as installation_routes
from web.media.network_accounts import routes as network_account_routes
from web.media.network_settings import routes as network_routes
from web.media.notifications import routes as notification_routes
from web.media.organization_notifications import routes as organization_notification_routes
from web.media.pushes import routes as push_routes
from web.media.webhooks import routes as webhook_routes
from web.models.messages import routes as messages_routes
from web.models.routes import routes as model_routes
from web.monitoring.readiness import build_health_checks
from web.monitoring.routes import routes as health_routes
from web.openapi.routes import routes as document_routes
from web.pages.routes import routes as page_routes

log = get_logger(__name__)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_PORT = re.compile(r":\d*$")

ROUTES = (
    *FILE_ROUTES,
    model_routes,
    messages_routes,
    *IDENTITY_ROUTES,
    *CREDIT_ROUTES,
    *BUDGET_ROUTES,
    push_routes,
    message_routes,
    import_routes,
    network_routes,
    installation_routes,
    network_account_routes,
    notification_routes,
    organization_notification_routes,
    webhook_routes,
    *AGENT_ROUTES,
    document_routes,
    page_routes,
    *CONSOLE_ROUTES,
    guide_routes,
    health_routes,
)


def create_app(settings: Settings, services: Services | None = None) -> Flask:
    """Create the WSGI application."""
    configure_logging(settings.log_level)
    failpoints.arm(settings.faults)
    start_tracing("web")
    app = Flask("quartermaster", static_folder=None)
    app.config["BASE_URL"] = settings.base_url
    app.url_map.strict_slashes = False
    # A path with doubled slashes is another path and gives 404. A redirect to the merged path would lose the
    # request's body.
    app.url_map.merge_slashes = False
    app.extensions["services"] = services or build_services(settings)
    app.extensions["error_dialects"] = Dialects(base_url=settings.base_url)
    app.extensions["health_checks"] = _build_health_checks(settings, app.extensions["services"])
    app.extensions["operations_port"] = OperationsPort(app.extensions["health_checks"])
    register_converters(app)
    register_error_handlers(app)
    for routes in ROUTES:
        routes.register(app)
    # `_begin` is registered first, so every later hook and error handler has a request id and a span.
    app.before_request(_begin)
    app.before_request(_refuse_foreign_host)
    add_cors_headers(app)
    app.after_request(_finish)
    app.teardown_request(_forget)
    # This middleware is the outermost, so neither Flask nor its error pages see a read grant.
    app.wsgi_app = wrap_application(app.wsgi_app, settings.trusted_proxies)  # type: ignore[method-assign, assignment]
    return app


def _build_health_checks(settings: Settings, services: Services) -> HealthChecks:
    metrics = HostMetrics(settings.metrics_directory, "web")
    metrics.start()
    return build_health_checks(services, metrics)


def _begin() -> None:
    g.started = time.perf_counter()
    g.span = _begin_span()
    g.log_context = bind_log_context(
        request_id=assign_request_id(request),
        trace_id=trace_id(traceparent() or request.headers.get(HEADER)),
        client_address=client_address(request.environ),
    )


def _begin_span() -> Span:
    """Start the request's span, as a child of the client's span if the client sent one.

    The span omits the path, because a path may be secret.
    """
    if _is_probe():
        return NO_SPAN
    route = request.url_rule.rule if request.url_rule is not None else "none"
    method = request.method if request.method in _METHODS else "_OTHER"
    made = span(
        f"{method} {route}",
        "server",
        parent=request.headers.get(HEADER),
        http__request__method=method,
        http__route=route,
    )
    made.enter()
    return made


def _refuse_foreign_host() -> None:
    """Refuse a host name that is not in `ALLOWED_HOSTS`, if that setting is present.

    Health probes are exempt, because they use the address instead of a host name.
    """
    allowed = current_app.extensions["services"].settings.allowed_hosts
    if allowed and not _is_probe() and _PORT.sub("", request.headers.get("Host", "")).lower() not in allowed:
        raise MalformedRequest("This host name is not served here. Check the URL.")


def _is_probe() -> bool:
    """Return whether the request is a health probe or comes from Prometheus."""
    return (request.endpoint or "").startswith("operations.")


def _finish(response: Response) -> Response:
    if isinstance(response, ResponsePlaceholder):
        # The client may hang up before the real response exists, so the placeholder ends the span too.
        response.call_on_close(g.span.end)
        return response  # The real response passes through this function again.
    response.headers["X-Request-Id"] = request_id()
    # Anthropic's clients read the request id from `request-id`.
    if is_anthropic_path(request.path):
        response.headers[REQUEST_ID_HEADER] = request_id()
    # Use `setdefault`, because a route that serves stored content may have set another value.
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    if "rate_limit" in g:
        response.headers.update(g.rate_limit.headers())
    rule, method = request.url_rule, request.method
    route = rule.rule if rule is not None else "none"
    seconds = time.perf_counter() - g.started
    # Clients can send any word as a method. Count unknown methods as "other": each label value stays in
    # memory for good.
    count, duration = _metrics(method if method in _METHODS else "other", route, response.status_code)
    count.inc()
    duration.observe(seconds)
    _end_span(response.status_code)
    # Do not log successful probes: they arrive every few seconds and would bury other log lines.
    if not _is_probe() or response.status_code != HTTPStatus.OK:
        log.info(
            "request.answered",
            method=method,
            route=route,
            path=request.path,
            status=response.status_code,
            ms=round(seconds * 1000, 1),
        )
    return response


@cache
def _metrics(method: str, route: str, status: int) -> tuple[Counter, Histogram]:
    """Return the counter and the histogram for a method, a route and a status.

    The cache holds one entry for each label combination, so it grows no larger than the metrics.
    """
    return HTTP_REQUESTS.labels(method, route, str(status)), HTTP_SECONDS.labels(method, route)


def _forget(_: BaseException | None) -> None:
    if "log_context" in g:
        g.span.leave()
        reset_log_context(g.log_context)


def _end_span(status: int) -> None:
    g.span.set("http.response.status_code", status)
    g.span.set("quartermaster.request_id", request_id())
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        g.span.fail(str(status))
    g.span.end()
