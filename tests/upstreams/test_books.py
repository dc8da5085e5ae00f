"""The fake upstream's record counts chunks that a client received, and not those written to a closed connection."""

import json
import socket
import threading
from urllib.parse import urlsplit

import pytest

from tests.support.models.upstreams import FakeUpstream
from tests.support.processes.stack import wait_until
from tests.support.servers.local_servers import ADDRESS

BODY = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hello"}]}).encode()
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY


@pytest.mark.parametrize("hangs_up", [False, True])
def test_chunk_counts_once_the_client_received_it(hangs_up: bool) -> None:
    with FakeUpstream() as upstream:
        client = socket.create_connection((ADDRESS, urlsplit(upstream.base_url).port or 0))
        wait_until(lambda: upstream.is_connected, "the upstream has the connection")
        may_read = threading.Event()
        upstream._loop.call_soon_threadsafe(may_read.wait, 60)
        with client:
            client.sendall(REQUEST)
            if hangs_up:
                client.shutdown(socket.SHUT_RDWR)
            may_read.set()
            (line,) = upstream.wait_for_end_of(1)
        wait_until(lambda: not upstream.is_connected, "the connection is over")
    assert line.is_reported is not hangs_up
