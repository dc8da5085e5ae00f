"""The checks of `quartermaster doctor` over REST: address, clock, readiness, credential, and backlogs.

Settings, schema and blob store are checked only over the database (`deploy/cli/health_report.py`).
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from urllib.parse import urlsplit

import httpx
from prometheus_client.parser import text_string_to_metric_families

from deploy.cli.client.rest_client import open_service
from deploy.cli.client.saved_logins import Login
from deploy.cli.exit_codes import ExitCode, Failure
from deploy.cli.health_report import (
    MAX_CLOCK_OFFSET_SECONDS,
    WAITING_SECONDS,
    Finding,
    old_backlog,
    passed,
    problem,
)

_TIMEOUT_SECONDS = 10.0
_BACKLOG, _OLDEST = "quartermaster_backlog", "quartermaster_backlog_oldest_seconds"
_PROCESSES = "quartermaster_processes"


@dataclass(slots=True, kw_only=True)
class ServiceMetrics:
    """The numbers of processes and the backlogs in the response of a web process's `/metrics`."""

    processes: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    oldest_seconds: dict[str, float] = field(default_factory=dict)

    def backlogs(self) -> Iterator[tuple[str, int, float]]:
        """Yield each backlog: its name, its number of rows, and the age of its oldest row in seconds."""
        for name, count in self.rows.items():
            yield name.replace("_", " "), count, self.oldest_seconds.get(name, 0.0)


def read_service_metrics(login: Login) -> ServiceMetrics | None:
    """Return the processes on the web process's host and the service's backlogs, or None if metrics are not public.

    Raises Failure if the service cannot be reached.
    """
    response = _get(login, "/metrics")
    # Return None for an error status: the operator may have set PUBLIC_METRICS=false, which is not a problem.
    if not response.is_success:
        return None
    metrics = ServiceMetrics()
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            if sample.name == _PROCESSES:
                metrics.processes[sample.labels["role"]] = int(sample.value)
            elif sample.name == _BACKLOG:
                metrics.rows[sample.labels["state"]] = int(sample.value)
            elif sample.name == _OLDEST:
                metrics.oldest_seconds[sample.labels["state"]] = sample.value
    return metrics


def check_remote_service(login: Login) -> Iterator[Finding]:
    """Yield the findings of all remote checks. If the service cannot be reached, yield only that finding."""
    try:
        # Request this first: if the service does not respond, all other checks would fail for the same reason.
        response = _get(login, "/readyz")
    except Failure as error:
        remedy = "Start it, or correct its address, DNS name or certificate."
        yield problem("service", error.message, remedy, is_wrong=True)
        return
    yield from _check_transport(login)
    yield from _check_clock(response)
    yield from _check_readiness(response)
    yield from _check_credential(login)
    yield from _check_backlogs(read_service_metrics(login))


def _check_transport(login: Login) -> Iterator[Finding]:
    address = urlsplit(login.base_url)
    host = address.hostname or ""
    is_local = host == "localhost"
    # ip_address() raises ValueError for a host name: of all names, only `localhost` is local.
    with suppress(ValueError):
        is_local = ip_address(host).is_loopback
    if address.scheme == "http" and not is_local:
        remedy = "Use the service's https:// address."
        yield problem("transport", "credentials are sent over plain HTTP", remedy, is_wrong=True)
    else:
        yield passed("transport", login.base_url)


def _check_clock(response: httpx.Response) -> Iterator[Finding]:
    with suppress(KeyError, ValueError):
        # Subtract one second: the header has whole seconds, so a smaller difference proves nothing.
        offset = abs(parsedate_to_datetime(response.headers["Date"]).timestamp() - time.time()) - 1
        if offset > MAX_CLOCK_OFFSET_SECONDS:
            detail = f"differs from the service's clock by {offset:.0f} s"
            yield problem("clock", detail, "Synchronize both clocks by NTP.")
            return
    yield passed("clock", "agrees with the service's clock")


def _check_readiness(response: httpx.Response) -> Iterator[Finding]:
    try:
        checks: dict[str, str] = response.json()["checks"]
    except (ValueError, KeyError):
        detail = f"/readyz returned status {response.status_code} without checks"
        yield problem("service", detail, "Read the logs of its web processes.", is_wrong=True)
        return
    for name, detail in checks.items():
        if detail == "ok":
            yield passed(name, "responds")
        else:
            remedy = "Run `quartermaster doctor` on the installation's host."
            yield problem(name, detail, remedy, is_wrong=True)


def _check_credential(login: Login) -> Iterator[Finding]:
    try:
        with open_service(login, prefers_deployment=False) as client:
            client.raw.request("GET", "/admin/me" if login.api_key else "/v1/key")
    except Failure as error:
        yield problem("credential", error.message, "Run `quartermaster login`.", is_wrong=True)
    else:
        yield passed("credential", "accepted")


def _check_backlogs(metrics: ServiceMetrics | None) -> Iterator[Finding]:
    if metrics is None:
        yield passed("waiting work", "unknown: the service's metrics are not public (PUBLIC_METRICS)")
        return
    for name, count, oldest_seconds in metrics.backlogs():
        if oldest_seconds > WAITING_SECONDS:
            yield old_backlog(name, count, oldest_seconds)
    yield passed("waiting work", f"{sum(metrics.rows.values())} pending")


def _get(login: Login, path: str) -> httpx.Response:
    try:
        return httpx.get(f"{login.base_url}{path}", timeout=_TIMEOUT_SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        detail = f"{login.base_url} does not respond ({type(error).__name__})"
        raise Failure(detail, ExitCode.TRY_LATER) from None
