"""An answer that is lost on its way, as on a link that is cut, is asked for again, and patience outlasts several."""

import contextlib
import socket
import threading
from typing import Any

from tests.chaos.installation import Installation
from tests.chaos.oracle import Oracle
from tests.chaos.patience import GIVE_UP_SECONDS, Patience
from tests.support.agents.rest_clients import Client

TIMEOUT_SECONDS = 0.5


def test_an_answer_that_never_comes_is_asked_for_again() -> None:
    oracle = Oracle()
    with socket.create_server(("127.0.0.1", 0)) as server:
        front = f"http://127.0.0.1:{server.getsockname()[1]}"
        client = Client(front, "token", timeout_seconds=TIMEOUT_SECONDS)
        answering = threading.Thread(target=answer_all_but_the_first, args=(server,))
        answering.start()
        answer = Patience([front], oracle).ask("read", lambda front: client.read("file", via=front))
        server.shutdown(socket.SHUT_RDWR)
        answering.join()
    assert answer.status_code == 204
    assert oracle.retries["ReadTimeout"] >= 1


def test_a_client_has_the_patience_for_several_lost_answers() -> None:
    nothing: Any = None
    installation = Installation(
        stack=nothing,
        fronts=["http://127.0.0.1:9"],
        credentials={"ownerApiKey": "key"},
        database=nothing,
        identity=nothing,
        oracle=Oracle(),
        seed=1,
    )
    assert 3 * installation.owner().timeout_seconds < GIVE_UP_SECONDS


def answer_all_but_the_first(server: socket.socket) -> None:
    """Answer until nobody can connect any more; the first to ask is heard and never answered."""
    silent, _ = server.accept()
    with silent:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):  # who asked may have gone
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
