"""Logs and metrics: JSON lines with static event names, and Prometheus metrics.

No token, grant, key or webhook secret reaches a log line, in any field. All metrics are declared here, so
that names and labels have one place. `shared/runtime/log_writer.py` writes the lines.
"""

import contextvars
import json
import logging
import re
import time
from collections.abc import Mapping, MutableMapping
from types import MappingProxyType
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from shared.observability.multiprocess_metrics import LatestGauge

# API keys and tokens of this service, webhook secrets, JWTs, Telegram bots' tokens in URLs, passwords in URLs.
_SECRETS = re.compile(
    r"sv[a-z]_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=_-]{8,}|eyJ[\w-]{8,}\.[\w-]+\.[\w-]+|bot\d+:[\w-]+|(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"
)
# The start of gunicorn's warning, which continues with the rejected text.
_MALFORMED = re.compile(r"Invalid request from ip=(\S*): ")
_write = json.JSONEncoder(default=str).encode  # json.dumps would create an encoder for every line
_context: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar(
    "log_context", default=MappingProxyType({})
)

HTTP_REQUESTS = Counter(
    "quartermaster_http_requests_total", "Requests with a response.", ["method", "route", "status"]
)
HTTP_SECONDS = Histogram(
    "quartermaster_http_request_seconds",
    "Time to the first byte of a response.",
    ["method", "route"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 30, 120),
)
UPLOADED_BYTES = Counter("quartermaster_uploaded_bytes_total", "Content received and committed.")
JOBS = Counter("quartermaster_jobs_total", "Jobs handled.", ["kind", "outcome"])
JOB_SECONDS = Histogram("quartermaster_job_seconds", "Time to handle a job.", ["kind"])
JOB_SUCCEEDED_AT = LatestGauge(
    "quartermaster_job_last_success_timestamp_seconds", "When a job of this kind last ended well.", ["kind"]
)
SWEEP_INTERVAL_SECONDS = LatestGauge(
    "quartermaster_sweep_interval_seconds", "How often the schedule sends a sweep.", ["kind"]
)
PUBLISH_FAILURES = Counter(
    "quartermaster_publish_failures_total", "Job messages the broker did not take; sweeps find their rows."
)
SCRUBBED = Counter(
    "quartermaster_scrubbed_total", "Stored contents read again and compared with their digest.", ["outcome"]
)
BLOBS_MISSING = Counter(
    "quartermaster_blobs_missing_total", "Readers of content that is recorded and not in the store."
)
STORE_REQUESTS = Counter(
    "quartermaster_store_requests_total",
    "What the blob store was asked for, and how it ended.",
    ["operation", "outcome"],
)
STORE_SECONDS = Histogram(
    "quartermaster_store_request_seconds",
    "Time until the blob store responded.",
    ["operation"],
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 30),
)
SWEPT = Counter("quartermaster_swept_total", "Rows or bytes a sweep dealt with.", ["sweep"])
TURNS = Counter(
    "quartermaster_turns_total", "Turns of agents that ended in this worker.", ["behavior", "outcome"]
)
POOL_USE = Gauge("quartermaster_pool_in_use", "Slots of a pool in use.", ["pool"])
POOL_SLOTS = Gauge("quartermaster_pool_slots", "Slots that a pool has.", ["pool"])
POOL_WAITS = Counter(
    "quartermaster_pool_waits_total", "Callers that had to wait for a slot of a pool.", ["pool"]
)
POOL_REFUSALS = Counter(
    "quartermaster_pool_refusals_total",
    "Callers refused a slot: for the tenant's own use of the pool, or for want of room in it.",
    ["pool", "reason"],
)
LEDGER_DISCREPANCIES = LatestGauge(
    "quartermaster_ledger_discrepancies",
    "Figures of the ledger that disagreed when they were last compared.",
    ["kind"],
)
REFUSED_CREDENTIALS = Counter("quartermaster_refused_credentials_total", "Credentials refused.", ["reason"])
PROVIDER_REQUESTS = Counter(
    "quartermaster_provider_requests_total", "Requests sent to providers of models.", ["provider", "outcome"]
)
MODEL_CALLS = Counter(
    "quartermaster_model_calls_total", "Calls to models that were settled.", ["provider", "status"]
)
MODEL_TOKENS = Counter(
    "quartermaster_model_tokens_total", "Tokens of such calls, as they were charged.", ["provider", "kind"]
)
MODEL_CREDITS = Counter("quartermaster_model_credits_total", "Credits charged for such calls.", ["provider"])
PROVIDER_FIRST_BYTE_SECONDS = Histogram(
    "quartermaster_provider_first_byte_seconds",
    "Time until a provider began to respond.",
    ["provider"],
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
)
EGRESS_REQUESTS = Counter(
    "quartermaster_egress_requests_total", "Requests to addresses that others chose.", ["purpose", "outcome"]
)
EGRESS_BYTES = Counter(
    "quartermaster_egress_bytes_total", "Content received from such addresses.", ["purpose"]
)
EGRESS_SECONDS = Histogram(
    "quartermaster_egress_request_seconds",
    "Time until such a request had ended.",
    ["purpose"],
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800),
)
DELIVERIES = Counter(
    "quartermaster_deliveries_total", "Attempts to post a message to another service.", ["kind", "outcome"]
)
IMPORTS = Counter(
    "quartermaster_imports_total", "Attempts to import media, by how they ended.", ["network", "outcome"]
)
MESSAGES = Counter(
    "quartermaster_distribution_messages_total",
    "Messages that distributions received for agents, by what became of them.",
    ["network", "outcome"],
)
LOST_LOG_LINES = Counter("quartermaster_log_lines_lost_total", "Lines of the log that could not be written.")

for _outcome in ("sound", "damaged", "removed"):  # an alert misses the first increase of a new series
    SCRUBBED.labels(_outcome)


class Logger:
    """A logger of events: `log.info("file.stored", file_id=…)`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def info(self, event: str, **fields: Any) -> None:
        """Log an expected event."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Log an event that an operator may need to know."""
        self._log(logging.WARNING, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """Log a failure of this service with the traceback of the current exception."""
        self._logger.error(event, extra=_extra(fields), exc_info=True)  # noqa: LOG014 (callers handle one)

    def _log(self, level: int, event: str, fields: Mapping[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra=_extra(fields))


def _extra(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"fields": {**_context.get(), **fields}}


def get_logger(name: str) -> Logger:
    """Return the logger of a module."""
    return Logger(name)


def bind_log_context(**fields: Any) -> contextvars.Token[Mapping[str, Any]]:
    """Add fields to every line of this request or job. Pass the token to `reset_log_context`."""
    return _context.set({**_context.get(), **fields})


def reset_log_context(token: contextvars.Token[Mapping[str, Any]]) -> None:
    """Remove the fields that `bind_log_context` added."""
    _context.reset(token)


class MalformedRequestFilter(logging.Filter):
    """Removes the request text that gunicorn quotes when it cannot parse one: it may hold a secret."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace the message by an event name and the client's address."""
        match = _MALFORMED.match(record.getMessage())
        if match is not None:
            record.msg, record.args = "request.malformed", None
            record.fields = {"client_address": match[1]}
        return True


def redact(text: str) -> str:
    """Mask all text that looks like a secret of this service, a JWT, or a password in a URL."""
    return _SECRETS.sub("[redacted]", text)


class JsonFormatter(logging.Formatter):
    """Renders a record as one redacted JSON line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return `ts`, `level`, `event`, `logger` and then the event's fields as JSON."""
        line: MutableMapping[str, Any] = {
            "ts": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # Redact the whole line: a secret may also be in an exception's text or a nested field.
        return redact(_write(line))
