"""The private parts of urllib3 and http.client that our connections touch are as they were when these were written."""

import http.client
import inspect
import re
from importlib.metadata import version
from pathlib import Path

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.poolmanager import PoolManager

import shared.egress.connections
import shared.models.providers.connections

ROOT = Path(__file__).parents[3]
TOUCHING = (shared.egress.connections, shared.models.providers.connections)
PRIVATE = {"_new_conn", "_read_status"}
"""What is overridden of theirs that begins with an underscore; ours, of the same look, begins in our own classes."""


def test_the_version_that_was_read_is_pinned() -> None:
    pinned = re.search(r'"urllib3==([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert pinned is not None
    assert version("urllib3") == pinned[1]
    for path in (ROOT / "deploy").glob("requirements*.txt"):
        assert f"urllib3=={pinned[1]} " in path.read_text()


def test_no_other_private_part_is_overridden() -> None:
    theirs = (HTTPConnection, HTTPSConnection, HTTPConnectionPool, http.client.HTTPResponse)
    private = {name for one in theirs for name in dir(one) if re.match(r"_[a-z]", name)}
    overridden = {
        name
        for module in TOUCHING
        for one in vars(module).values()
        if isinstance(one, type) and one.__module__ == module.__name__ and issubclass(one, theirs)
        for name in vars(one)
    }
    assert overridden & private - {"_abc_impl"} == PRIVATE


def test_a_connection_is_made_by_the_method_that_is_overridden() -> None:
    assert list(inspect.signature(HTTPConnection._new_conn).parameters) == ["self"]
    for connection in (HTTPConnection, HTTPSConnection):
        assert "self._new_conn()" in inspect.getsource(connection.connect)
    assert "self.timeout" in inspect.getsource(HTTPConnection._new_conn)


def test_a_pool_makes_the_connections_that_its_class_names() -> None:
    assert "self.ConnectionCls(" in inspect.getsource(HTTPConnectionPool._new_conn)
    assert "self.pool_classes_by_scheme[scheme]" in inspect.getsource(PoolManager._new_pool)


def test_a_head_is_read_by_the_methods_that_are_overridden() -> None:
    assert "self._read_status()" in inspect.getsource(http.client.HTTPResponse.begin)
    assert "self.response_class(" in inspect.getsource(http.client.HTTPConnection.getresponse)
