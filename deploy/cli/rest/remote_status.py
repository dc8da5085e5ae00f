"""What can be told of a service from afar: whether it answers and is ready, as whom, and what its metrics say waits.

The settings, schema and store of an installation are looked at beside it only (`deploy/cli/health_report.py`).
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
from deploy.cli.health_report import CLOCK_SECONDS, WAITING_SECONDS, Finding, amiss, good

_PATIENCE_SECONDS = 10.0
_BACKLOG, _OLDEST = "quartermaster_backlog", "quartermaster_backlog_oldest_seconds"
_PROCESSES = "quartermaster_processes"


@dataclass(slots=True, kw_only=True)
class Seen:
    """What the metrics of a front say."""

    processes: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    oldest_seconds: dict[str, float] = field(default_factory=dict)

    def waiting(self) -> Iterator[tuple[str, int, float]]:
        """Give each kind of waiting work, how much of it there is, and the age of the oldest."""
        for name, count in self.rows.items():
            yield name.replace("_", " "), count, self.oldest_seconds.get(name, 0.0)


def read_metrics(login: Login) -> Seen | None:
    """Ask a front for what its host and the whole service are at; None where it does not show its metrics."""
    answer = _get(login, "/metrics")
    if not answer.is_success:
        return None
    seen = Seen()
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            if sample.name == _PROCESSES:
                seen.processes[sample.labels["role"]] = int(sample.value)
            elif sample.name == _BACKLOG:
                seen.rows[sample.labels["state"]] = int(sample.value)
            elif sample.name == _OLDEST:
                seen.oldest_seconds[sample.labels["state"]] = sample.value
    return seen


def examine_from_afar(login: Login) -> Iterator[Finding]:
    """Look a service over; each check that fails is a finding, and the first ends the others where none can help."""
    try:
        answer = _get(login, "/readyz")
    except Failure as error:
        yield amiss(
            "service", error.message, "Start it, or mend its address, name or certificate.", is_wrong=True
        )
        return
    yield from _check_transport(login)
    yield from _check_clock(answer)
    yield from _check_readiness(answer)
    yield from _check_credential(login)
    yield from _check_work(read_metrics(login))


def _check_transport(login: Login) -> Iterator[Finding]:
    address = urlsplit(login.base_url)
    host = address.hostname or ""
    is_here = host == "localhost"
    with suppress(ValueError):
        is_here = ip_address(host).is_loopback
    if address.scheme == "http" and not is_here:
        yield amiss("transport", "sends credentials over plain http", "Use the https address.", is_wrong=True)
    else:
        yield good("transport", login.base_url)


def _check_clock(answer: httpx.Response) -> Iterator[Finding]:
    with suppress(KeyError, ValueError):
        # The header has whole seconds.
        behind = abs(parsedate_to_datetime(answer.headers["Date"]).timestamp() - time.time()) - 1
        if behind > CLOCK_SECONDS:
            yield amiss("clock", f"differs by {behind:.0f} s from the service's", "Set both clocks by NTP.")
            return
    yield good("clock", "agrees with the service's")


def _check_readiness(answer: httpx.Response) -> Iterator[Finding]:
    try:
        checks: dict[str, str] = answer.json()["checks"]
    except (ValueError, KeyError):
        yield amiss("service", f"answered {answer.status_code} to /readyz", "See its logs.", is_wrong=True)
        return
    for name, said in checks.items():
        if said == "ok":
            yield good(name, "answers")
        else:
            yield amiss(name, said, "Run `quartermaster doctor` beside the installation.", is_wrong=True)


def _check_credential(login: Login) -> Iterator[Finding]:
    try:
        with open_service(login, prefers_deployment=False) as client:
            client.raw.request("GET", "/admin/me" if login.api_key else "/v1/key")
    except Failure as error:
        yield amiss("credential", error.message, "Run `quartermaster login`.", is_wrong=True)
    else:
        yield good("credential", "is accepted")


def _check_work(seen: Seen | None) -> Iterator[Finding]:
    if seen is None:
        yield good("waiting work", "not shown: the metrics are not public")
        return
    for name, count, oldest_seconds in seen.waiting():
        if oldest_seconds > WAITING_SECONDS:
            said = f"{count} {name}, the oldest for {oldest_seconds:.0f} s"
            yield amiss("waiting work", said, "Start more workers of that kind; see their logs.")
    yield good("waiting work", f"{sum(seen.rows.values())} in all")


def _get(login: Login, path: str) -> httpx.Response:
    try:
        return httpx.get(f"{login.base_url}{path}", timeout=_PATIENCE_SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        said = f"{login.base_url} does not answer ({type(error).__name__})"
        raise Failure(said, ExitCode.TRY_LATER) from None
