"""A client repeats a request whose response was lost, such as on a cut link, and survives several such losses."""

import contextlib
import socket
import threading
from typing import Any

from tests.chaos.installation import Installation
from tests.chaos.observations import Observations
from tests.chaos.retrying_client import GIVE_UP_SECONDS, RetryingClient
from tests.support.agents.rest_clients import Client

TIMEOUT_SECONDS = 0.5


def test_request_without_response_is_repeated() -> None:
    observations = Observations()
    with socket.create_server(("127.0.0.1", 0)) as server:
        front = f"http://127.0.0.1:{server.getsockname()[1]}"
        client = Client(front, "token", timeout_seconds=TIMEOUT_SECONDS)
        answering = threading.Thread(target=answer_all_but_the_first, args=(server,))
        answering.start()
        answer = RetryingClient([front], observations).ask(
            "read", lambda front: client.read("file", via=front)
        )
        server.shutdown(socket.SHUT_RDWR)
        answering.join()
    assert answer.status_code == 204
    assert observations.retries["ReadTimeout"] >= 1


def test_client_timeout_outlasts_several_lost_responses() -> None:
    nothing: Any = None
    installation = Installation(
        stack=nothing,
        fronts=["http://127.0.0.1:9"],
        credentials={"ownerApiKey": "key"},
        database=nothing,
        identity=nothing,
        observations=Observations(),
        seed=1,
    )
    assert 3 * installation.owner().timeout_seconds < GIVE_UP_SECONDS


def answer_all_but_the_first(server: socket.socket) -> None:
    """Respond to all connections but the first, which is read and never answered, until the server closes."""
    silent, _ = server.accept()
    with silent:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):  # The client may have closed the connection.
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
