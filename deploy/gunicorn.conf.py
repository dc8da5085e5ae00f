"""Configure gunicorn for the web process: threads, connection limits, timeouts, shutdown and logging.

The environment overrides each value that comes from `server_settings`. Gunicorn's access logs are off. The application
logs requests without their query strings, because query strings contain read grants.
"""

import os
import resource
import shutil
import signal
import socket
import tempfile
from functools import partial
from pathlib import Path

import gunicorn.util

from deploy.supervision.launcher import bind_to_parent
from shared.config.settings import load_settings
from shared.config.settings_errors import SettingsInvalid
from shared.observability.multiprocess_metrics import make_directory
from shared.operations.operations_port import listen_for_operators
from shared.runtime.gc_tuning import freeze_loaded_objects, pause_while_loading
from web.server.connections import hang_up
from web.server.listeners import drop_new_connections
from web.server.request_reader import Limits
from web.server.server_settings import load_server_settings
from web.server.worker_class import BufferingWorker

try:
    _settings = load_server_settings()
    # Read the service's settings only if BLOB_STORE is set: tests start gunicorn with incomplete settings.
    if "BLOB_STORE" in os.environ:
        load_settings()
except SettingsInvalid as error:
    raise SystemExit(str(error)) from None  # SystemExit alone is printed without a traceback
bind = _settings.web_bind or f"127.0.0.1:{_settings.port}"
worker_class = BufferingWorker
BufferingWorker.limits = Limits(
    head_seconds=_settings.web_head_seconds,
    small_body_seconds=_settings.web_small_body_seconds,
    gathered_bytes=_settings.web_gathered_bytes,
    queue_seconds=_settings.slot_wait_seconds,
)
workers = _settings.web_processes
threads = _settings.web_threads  # created on demand; a request that waits for a slot uses none
worker_connections = _settings.web_connections
_soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # each connection needs a file descriptor
resource.setrlimit(resource.RLIMIT_NOFILE, (_hard, _hard))
if _hard != resource.RLIM_INFINITY:
    # Reserve 512 descriptors, or half of a low limit, for Postgres, Valkey, files and logs.
    worker_connections = min(worker_connections, max(_hard - 512, _hard // 2))
backlog = 1024
preload_app = False  # connection pools and threads do not survive a fork

timeout = 60  # seconds after which an unresponsive worker is killed; it does not limit requests
graceful_timeout = _settings.web_drain_seconds
keepalive = _settings.web_keepalive_seconds
BufferingWorker.send_seconds = _settings.web_send_seconds

# Use gunicorn's maximum: URLs contain read grants, and nothing requires the lower default of 4,094 bytes.
limit_request_line = 8190
limit_request_fields = 100
limit_request_field_size = 8190
# Trust no proxy here: the application checks TRUSTED_PROXIES, and no client may set SCRIPT_NAME.
forwarded_allow_ips = ""
forwarder_headers = ""
secure_scheme_headers = {}

control_socket_disable = True
accesslog = None
loglevel = (os.environ.get("LOG_LEVEL") or "info").lower()
logconfig_dict = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "shared.observability.telemetry.JsonFormatter"}},
    "handlers": {
        "stdout": {
            "class": "shared.runtime.log_writer.LineHandler",
            "formatter": "json",
            "filters": ["malformed"],
        }
    },
    "filters": {"malformed": {"()": "shared.observability.telemetry.MalformedRequestFilter"}},
    "root": {"level": loglevel.upper(), "handlers": ["stdout"]},
    "loggers": {"gunicorn.error": {"level": loglevel.upper(), "handlers": ["stdout"], "propagate": False}},
}
# Use memory: workers touch a file in this directory as a heartbeat. On a slow or full disk a heartbeat could be late,
# and gunicorn would kill the worker.
worker_tmp_dir = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
proc_name = "quartermaster-web"

# Delete only a directory created here: if METRICS_DIRECTORY is set, other processes of the host use that directory.
_own_metrics = (
    None
    if os.environ.get("METRICS_DIRECTORY")
    else str(make_directory(Path(worker_tmp_dir or tempfile.gettempdir())))
)
if _own_metrics:
    os.environ["METRICS_DIRECTORY"] = _own_metrics


_operations = None


def on_starting(server):
    """Check the servers and open the operations port before the first fork, so that every worker can serve the port."""
    if "BLOB_STORE" in os.environ:
        _refuse_wrong_servers()
    global _operations  # noqa: PLW0603 (gunicorn's hooks share nothing else)
    _operations = listen_for_operators()


def _refuse_wrong_servers():
    """Exit if the blob store does not belong to the database, or if database connections have no time limits.

    A lost mount leaves an empty directory that looks like a store; a connection pooler may drop time limits.
    """
    # Import here, because tests start gunicorn without a blob store.
    from shared.db.database import Database
    from shared.db.role_limits import refuse_missing_limits
    from shared.files.stores import open_configured_store, refuse_wrong_store

    # Open only one connection: each check runs one query, and the workers open their own pools.
    settings = load_settings()
    database = Database.of(settings, pool_size=1)
    refuse_missing_limits(settings, database)
    refuse_wrong_store(open_configured_store(settings, database))
    database.dispose()  # connections must not be shared with forked workers


def _stop_listening_and(stop, server, graceful=True):  # noqa: FBT002 (gunicorn's)
    """Refuse new connections, then stop as gunicorn does. The workers still serve accepted connections.

    The listeners stay open if another process uses them too: systemd, or a new gunicorn after the signal USR2.
    """
    if server.reexec_pid == server.master_pid == 0 and not server.systemd:
        drop_new_connections(server.LISTENERS)
    stop(graceful)


def when_ready(server):
    """Make the kernel close a connection whose client reads nothing for WEB_SEND_SECONDS, to free the thread.

    Connections inherit this option from their listener. After the kernel has closed a connection, sending fails. This
    ends a download, or cancels the model call of a stream.
    """
    for listener in server.LISTENERS:
        if listener.sock.family in (socket.AF_INET, socket.AF_INET6):
            listener.sock.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _settings.web_send_seconds * 1000
            )
    server.stop = partial(_stop_listening_and, server.stop, server)


def post_fork(server, worker):
    """Make the kernel kill the worker if its master ends, and pause garbage collection while the application loads."""
    # Use SIGKILL: without a master no process can stop or replace the worker, and the worker would keep the port.
    bind_to_parent(signal.SIGKILL)
    pause_while_loading()


def post_worker_init(worker):
    """Replace how gunicorn closes connections, writes errors and logs requests, and serve the operations port."""
    gunicorn.util.close_graceful = (
        hang_up  # gunicorn's waits for the client, which blocks the accepting thread
    )
    gunicorn.util.write_error = worker.write_error  # error responses in the API format of their path
    worker.log.access = lambda *_: (
        None
    )  # with a logconfig, gunicorn would format each line and then discard it
    if _operations is not None:
        worker.app.wsgi().extensions["operations_port"].serve(
            _operations, is_draining=lambda: not worker.alive
        )
    freeze_loaded_objects()


def on_exit(server):
    """Delete the metrics directory that this process created."""
    if _own_metrics:
        shutil.rmtree(_own_metrics, ignore_errors=True)
