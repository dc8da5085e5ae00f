"""How gunicorn runs the HTTP front: threads for streams and uploads, sendfile for downloads, limits on everything.

Each setting can be changed by the environment variable beside it. Access logs are off because the application logs
requests itself, without the query strings in which read grants travel.
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

from deploy.supervision.launch import bind_to_parent
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
    _front = load_server_settings()
    if "BLOB_STORE" in os.environ:
        load_settings()
except SettingsInvalid as wrong:
    raise SystemExit(str(wrong)) from None  # gunicorn would write anything else with its traceback
bind = _front.web_bind or f"127.0.0.1:{_front.port}"
worker_class = BufferingWorker
BufferingWorker.limits = Limits(
    head_seconds=_front.web_head_seconds,
    small_body_seconds=_front.web_small_body_seconds,
    gathered_bytes=_front.web_gathered_bytes,
    turn_seconds=_front.slot_wait_seconds,
)
workers = _front.web_processes
threads = _front.web_threads  # made as they are needed; what waits holds none
worker_connections = _front.web_connections
_soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # each connection is a file
resource.setrlimit(resource.RLIMIT_NOFILE, (_hard, _hard))
if _hard != resource.RLIM_INFINITY:
    worker_connections = min(worker_connections, max(_hard - 512, _hard // 2))
backlog = 1024
preload_app = False  # pools and threads are made in the process that uses them

timeout = 60  # of a worker that no longer answers its parent; requests may last longer
graceful_timeout = _front.web_drain_seconds
keepalive = _front.web_keepalive_seconds
BufferingWorker.send_seconds = _front.web_send_seconds

limit_request_line = 8190
limit_request_fields = 100
limit_request_field_size = 8190
# Nobody's: the application alone decides whom it believes (TRUSTED_PROXIES), and no client may name a SCRIPT_NAME.
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
worker_tmp_dir = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
proc_name = "quartermaster-web"

# One that was given is shared with the host's other processes and theirs to empty.
_own_metrics = (
    None
    if os.environ.get("METRICS_DIRECTORY")
    else str(make_directory(Path(worker_tmp_dir or tempfile.gettempdir())))
)
if _own_metrics:
    os.environ["METRICS_DIRECTORY"] = _own_metrics


_operations = None


def on_starting(server):
    """Look at the blob store, and listen for operators before any process is forked: one that is alive answers them."""
    if "BLOB_STORE" in os.environ:
        _refuse_wrong_servers()
    global _operations  # noqa: PLW0603 (gunicorn's hooks share nothing else)
    _operations = listen_for_operators()


def _refuse_wrong_servers():
    """Start no front over a store that is not the database's, such as the directory below a mount that is lost.

    Nor through a pooler behind which nothing has a time limit.
    """
    # Imported here: not every start of gunicorn has a store.
    from shared.db.database import Database
    from shared.db.role_limits import refuse_missing_limits
    from shared.files.stores import open_configured_store, refuse_wrong_store

    settings = load_settings()
    database = Database.of(settings, pool_size=1)
    refuse_missing_limits(settings, database)
    refuse_wrong_store(open_configured_store(settings, database))
    database.dispose()  # connections are not for the processes that are forked


def _stop_listening_and(stop, server, graceful=True):  # noqa: FBT002 (gunicorn's)
    """Stop as gunicorn does, new connections excluded first; those that were made are taken by the workers.

    Not where somebody else goes on to listen at the same sockets: the next gunicorn (USR2), or systemd.
    """
    if server.reexec_pid == server.master_pid == 0 and not server.systemd:
        drop_new_connections(server.LISTENERS)
    stop(graceful)


def when_ready(server):
    """Make the kernel close connections of clients that read nothing for too long: each holds a thread.

    Connections inherit it from their listener; sending then fails, which ends a download and cancels a stream's call.
    """
    for listener in server.LISTENERS:
        if listener.sock.family in (socket.AF_INET, socket.AF_INET6):
            listener.sock.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _front.web_send_seconds * 1000
            )
    server.stop = partial(_stop_listening_and, server.stop, server)


def post_fork(server, worker):
    """End this worker when its master is killed, and let it load the application."""
    bind_to_parent(signal.SIGKILL)
    pause_while_loading()


def post_worker_init(worker):
    """Close connections without waiting for the client, which would block the accepting thread.

    Have gunicorn's own refusals written in the dialect of their path too.
    """
    gunicorn.util.close_graceful = hang_up
    gunicorn.util.write_error = worker.write_error
    worker.log.access = lambda *_: None  # with a logconfig it would write nothing at the cost of writing it
    if _operations is not None:
        worker.app.wsgi().extensions["operations_port"].serve(
            _operations, is_draining=lambda: not worker.alive
        )
    freeze_loaded_objects()


def on_exit(server):
    """Remove what this process left behind."""
    if _own_metrics:
        shutil.rmtree(_own_metrics, ignore_errors=True)
