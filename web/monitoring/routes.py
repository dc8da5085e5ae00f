"""Routes of health checks, readiness and metrics, for load balancers and Prometheus."""

from flask import Response, current_app
from prometheus_client import CONTENT_TYPE_LATEST

from shared.identity.errors import ResourceNotFound
from shared.operations.health_checks import HealthChecks
from web.framework.authentication import Authentication
from web.framework.calls import JsonResponse, RequestContext
from web.framework.routes import Routes
from web.http.wire_types import CamelModel

routes = Routes("operations")


class Health(CamelModel):
    """Whether the process is alive."""

    status: str


class Readiness(CamelModel):
    """Whether the web process can serve requests, with the result of each check."""

    status: str
    checks: dict[str, str]


@routes.route(
    "GET",
    "/healthz",
    summary="Check that this process is alive; calls no other service",
    authentication=Authentication.PUBLIC,
    responses={200: Health},
)
def healthz(_: RequestContext) -> JsonResponse:
    return JsonResponse(body=Health(status="ok"))


@routes.route(
    "GET",
    "/readyz",
    summary="Check that database, broker and blob store answer; each is queried at most once a second",
    authentication=Authentication.PUBLIC,
    responses={200: Readiness, 503: Readiness},
)
def readyz(_: RequestContext) -> JsonResponse:
    checks = _health_checks().readiness()
    status = HealthChecks.status(checks)
    return JsonResponse(body=Readiness(status=status, checks=checks), status=200 if status == "ok" else 503)


@routes.route(
    "GET",
    "/metrics",
    summary="Get the metrics of all processes of this host, for Prometheus; disabled by `PUBLIC_METRICS=false`",
    authentication=Authentication.PUBLIC,
    responses={200: "text/plain"},
    errors=(ResourceNotFound,),
)
def metrics(call: RequestContext) -> Response:
    if not call.services.settings.public_metrics:
        # Respond 404 and not 403: without the setting the route does not exist.
        raise ResourceNotFound
    return Response(_health_checks().metrics(), content_type=CONTENT_TYPE_LATEST)


def _health_checks() -> HealthChecks:
    # create_app() stores the checks here. The operations port uses the checks too, so they are not in Services.
    checks: HealthChecks = current_app.extensions["health_checks"]
    return checks
