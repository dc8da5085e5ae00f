"""The links between the service and its servers, in a process of their own, so that they cost the clients no time.

`python -m tests.chaos.strikes.relays SERVERS` prints the port of each link, then reads one command for each strike. It
exits when its standard input closes, and so with its parent.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from tests.support.servers.links import Address, Link


class Relays:
    """The client side of the relay process."""

    def __init__(self, servers: Mapping[str, Address]) -> None:
        """Start links to these servers, which need not listen yet."""
        command = [sys.executable, "-m", __name__, json.dumps(dict(servers))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.ports: dict[str, int] = json.loads(self._process.stdout.readline())

    def reset(self, name: str, share: float) -> None:
        """Reset about this share of a link's connections (RST)."""
        self._tell(name, "reset", share=share)

    def be_silent(self, name: str, share: float, *, seconds: float) -> None:
        """Forward nothing on about this share of a link's connections for some seconds."""
        self._tell(name, "be_silent", share=share, seconds=seconds)

    def lose_answers(self, name: str, share: float, *, request: str) -> None:
        """On about this share of a link's connections, lose the response to the next request with this text."""
        self._tell(name, "lose_answers", share=share, request=request)

    def close(self) -> None:
        """Stop the process, and close all connections."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _tell(self, name: str, strike: str, **how: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"name": name, "strike": strike, "how": how}) + "\n")
        self._process.stdin.flush()


def main() -> None:
    """Start the links, and execute the commands read."""
    with ExitStack() as closing:
        links = {
            name: closing.enter_context(Link(server if isinstance(server, str) else (server[0], server[1])))
            for name, server in json.loads(sys.argv[1]).items()
        }
        print(json.dumps({name: link.port for name, link in links.items()}), flush=True)
        for line in sys.stdin:
            told = json.loads(line)
            _strike(links[told["name"]], told["strike"], **told["how"])


def _strike(link: Link, strike: str, share: float, seconds: float = 0.0, request: str = "") -> None:
    match strike:
        case "reset":
            link.reset(share)
        case "be_silent":
            link.be_silent(share, seconds)
        case "lose_answers":
            link.lose_answers(share, request.encode())


if __name__ == "__main__":
    main()
