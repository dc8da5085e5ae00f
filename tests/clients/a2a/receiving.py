"""An HTTP endpoint on this machine that receives push notifications."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """The received headers and bodies."""

    url: str = ""
    received: list[tuple[dict[str, str], Any]] = field(default_factory=list)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run the endpoint within the block."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.received.append((dict(self.headers), json.loads(body)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield receiver
        server.shutdown()
