"""The private parts of gunicorn that the server overrides are unchanged (`web/server/accept_thread.py`)."""

import inspect
import re
from pathlib import Path

import gunicorn  # type: ignore[import-untyped]
import pytest
from gunicorn import util
from gunicorn.arbiter import Arbiter  # type: ignore[import-untyped]
from gunicorn.http import wsgi  # type: ignore[import-untyped]
from gunicorn.http.body import LengthReader  # type: ignore[import-untyped]
from gunicorn.http.parser import Parser  # type: ignore[import-untyped]
from gunicorn.http.unreader import Unreader  # type: ignore[import-untyped]
from gunicorn.http.wsgi import Response  # type: ignore[import-untyped]
from gunicorn.workers.gthread import TConn, ThreadWorker  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[3]
OVERRIDDEN = {
    "accept": ["self", "listener"],
    "handle": ["self", "conn"],
    "handle_request": ["self", "req", "conn"],
    "finish_request": ["self", "conn", "fs"],
    "murder_pending": ["self"],
    "_cap_keepalive": ["self", "deadline"],
    "init_process": ["self"],
}
"""Methods of the worker that ours replaces or extends, with their parameters."""
OVERRIDDEN_OF_RESPONSE = {
    "send_headers": ["self"],
    "_emit_body": ["self", "data"],
    "write_file": ["self", "respiter"],
    "close": ["self"],
}
USED_OF_WORKER = ("nr", "max_requests", "nr_conns", "worker_connections", "poller", "tpool", "alive", "cfg")
USED_OF_CONNECTION = ("sock", "initialized", "data_ready", "parser")


def test_gunicorn_version_is_pinned() -> None:
    pinned = re.search(r'"gunicorn==([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert pinned is not None
    assert gunicorn.__version__ == pinned[1]
    for path in (ROOT / "deploy").glob("requirements*.txt"):
        assert f"gunicorn=={pinned[1]} " in path.read_text()


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_overridden_methods_have_the_parameters_they_had(name: str) -> None:
    assert list(inspect.signature(getattr(ThreadWorker, name)).parameters) == OVERRIDDEN[name]


def test_used_private_attributes_exist() -> None:
    worker = inspect.getsource(ThreadWorker)
    for name in USED_OF_WORKER:
        assert f"self.{name}" in worker, name
    connection = inspect.getsource(TConn.__init__)
    for name in USED_OF_CONNECTION:
        assert f"self.{name} =" in connection, name
    assert list(inspect.signature(TConn).parameters) == ["cfg", "sock", "client", "server"]
    assert list(inspect.signature(ThreadWorker.enqueue_req).parameters) == ["self", "conn"]
    assert "self.unreader" in inspect.getsource(Parser.__init__)
    assert list(inspect.signature(Unreader.unread).parameters) == ["self", "data"]
    assert list(inspect.signature(Unreader.take_buffered).parameters) == ["self"]


def test_deferred_response_leaves_gunicorn_by_a_base_exception() -> None:
    """It is raised as a BaseException, which no code between the application and the worker may catch."""
    for method in (ThreadWorker.handle, ThreadWorker.handle_request):
        source = inspect.getsource(method)
        assert "except BaseException" not in source
        assert not re.search(r"except\s*:", source)
    assert "self.wsgi(environ, resp.start_response)" in inspect.getsource(ThreadWorker.handle_request)
    assert "self.wsgi = self.app.wsgi()" in inspect.getsource(ThreadWorker.load_wsgi)


def test_the_response_writes_all_to_its_socket_by_sendall() -> None:
    source = inspect.getsource(Response)
    assert set(re.findall(r"util\.write\w*\(([\w.]+)", source)) == {"self.sock"}
    for write in (util.write, util.write_chunk):
        assert set(re.findall(r"sock\.(\w+)", inspect.getsource(write))) == {"sendall"}
    for name in ("write", "close", "should_close"):
        assert callable(getattr(Response, name))
    for name, parameters in OVERRIDDEN_OF_RESPONSE.items():
        assert list(inspect.signature(getattr(Response, name)).parameters) == parameters, name
    # The whole body passes `_emit_body`, a file `write_file`. Both send the head first.
    assert inspect.getsource(Response.write).count("self.send_headers()") == 1
    assert inspect.getsource(Response.write).rstrip().endswith("self._emit_body(arg)")
    assert list(inspect.signature(wsgi.create).parameters)[:6] == [
        *("req", "sock", "client", "server", "cfg", "response_class")
    ]
    assert "self.length" in inspect.getsource(LengthReader.__init__)


def test_gunicorn_writes_its_own_refusals_by_one_function() -> None:
    handler = inspect.getsource(ThreadWorker.handle_error)
    assert "util.write_error(client, status_int, reason, mesg)" in handler
    assert list(inspect.signature(util.write_error).parameters) == ["sock", "status_int", "reason", "mesg"]
    assert inspect.getsource(ThreadWorker.handle).count("self.handle_error(req, conn.sock,") == 2


def test_stop_calls_the_methods_that_ours_override() -> None:
    """The master stops through one method, which knows other listeners. A worker then calls another one, once."""
    stopping = inspect.getsource(Arbiter.stop)
    assert list(inspect.signature(Arbiter.stop).parameters) == ["self", "graceful"]
    assert "self.reexec_pid == self.master_pid == 0" in stopping
    assert "not self.systemd" in stopping
    assert stopping.index("close_sockets(") < stopping.index("self.kill_workers(")
    waiting = inspect.getsource(ThreadWorker.run).partition("while self.alive:")[2]
    order = ["set_accept_enabled(False)", "self._cap_keepalive(", "while self.nr_conns > 0", "s.close()"]
    assert sorted(order, key=waiting.index) == order
    assert waiting.count("self._cap_keepalive(") == 1
    assert "self._accepting = enabled" in inspect.getsource(ThreadWorker.set_accept_enabled)


def test_every_poll_is_followed_by_murder_pending() -> None:
    """The worker checks its deadlines in `murder_pending`, also while it drains."""
    loop = inspect.getsource(ThreadWorker.run)
    assert loop.count("self.wait_for_and_dispatch_events(") == loop.count("self.murder_pending()") == 2
    assert "while self.nr_conns > 0" in loop
