"""Tell operators and load balancers how the front is: alive, ready, and by numbers."""

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
    """Whether the front can do its work, check by check."""

    status: str
    checks: dict[str, str]


@routes.route(
    "GET",
    "/healthz",
    summary="Check that this process is alive; asks no other service",
    authentication=Authentication.PUBLIC,
    answers={200: Health},
)
def healthz(_: RequestContext) -> JsonResponse:
    return JsonResponse(body=Health(status="ok"))


@routes.route(
    "GET",
    "/readyz",
    summary="Check that database, broker and blob store answer; they are asked at most once a second",
    authentication=Authentication.PUBLIC,
    answers={200: Readiness, 503: Readiness},
)
def readyz(_: RequestContext) -> JsonResponse:
    checks = _probes().readiness()
    status = HealthChecks.status(checks)
    return JsonResponse(body=Readiness(status=status, checks=checks), status=200 if status == "ok" else 503)


@routes.route(
    "GET",
    "/metrics",
    summary="Get the metrics of all processes of this host, for Prometheus; switched off by `PUBLIC_METRICS=false`",
    authentication=Authentication.PUBLIC,
    answers={200: "text/plain"},
    errors=(ResourceNotFound,),
)
def metrics(call: RequestContext) -> Response:
    if not call.services.settings.public_metrics:
        raise ResourceNotFound
    return Response(_probes().metrics(), content_type=CONTENT_TYPE_LATEST)


def _probes() -> HealthChecks:
    probes: HealthChecks = current_app.extensions["probes"]
    return probes
