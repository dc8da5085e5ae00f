"""The links by which the service reaches its servers, in a process of their own, so that they cost the clients nothing.

`python -m tests.chaos.strikes.relays SERVERS` prints the port of each link, then does what it reads: a line for each
strike. It ends with its input, and so with who started it.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from tests.support.servers.links import Address, Link


class Relays:
    """The process, as who strikes at its links knows it."""

    def __init__(self, servers: Mapping[str, Address]) -> None:
        """Lead to these servers, which need not be there yet."""
        command = [sys.executable, "-m", __name__, json.dumps(dict(servers))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.ports: dict[str, int] = json.loads(self._process.stdout.readline())

    def reset(self, name: str, share: float) -> None:
        """End about this share of a link's connections by RST."""
        self._tell(name, "reset", share=share)

    def be_silent(self, name: str, share: float, *, seconds: float) -> None:
        """Pass nothing on for so long over about this share of them."""
        self._tell(name, "be_silent", share=share, seconds=seconds)

    def lose_answers(self, name: str, share: float, *, request: str) -> None:
        """Lose the answer to the next request with these characters on about this share of them."""
        self._tell(name, "lose_answers", share=share, request=request)

    def close(self) -> None:
        """End the process, and all connections."""
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
    """Lead to the servers, and strike as told."""
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
