"""Hosts as network namespaces: a bridge, and a link from it to each host, which can be cut silently.

Everything stands in namespaces of this program's own (`enter`), so that the machine is unchanged and everything
disappears with the program. The program itself has the bridge's address and stands for the outside network.
"""

import contextlib
import os
import signal
import subprocess
import sys

OUTSIDE = "10.77.0.1"
NETWORK = "10.77.0.0/24"
INSIDE = "TESTS_HOSTS_INSIDE"
_BRIDGE = "hosts"
_NOBODY = "02:00:00:00:00:99"
"""A hardware address that no host has: what is sent to it arrives nowhere."""


class NotPermitted(Exception):
    """This machine does not permit network namespaces for this account."""


def enter(module: str) -> None:
    """Run the module again within new namespaces, unless this is that run. Raises `NotPermitted`."""
    if INSIDE in os.environ:
        _open_network()
        return
    if os.geteuid() != 0:
        raise NotPermitted("root is needed, who stops Postgres from being root by another account")
    unshare = ["unshare", "--net", "--mount", "--propagation", "private", "--"]
    try:
        tried = subprocess.run([*unshare, "ip", "link", "set", "lo", "up"], capture_output=True, check=False)
    except FileNotFoundError as error:
        raise NotPermitted(f"{error.filename} is missing") from error
    if tried.returncode != 0:
        raise NotPermitted(tried.stderr.decode(errors="replace").strip())
    environment = os.environ | {INSIDE: "1", "TESTS_ADDRESS": OUTSIDE}
    sys.stdout.flush()
    os.execvpe("unshare", [*unshare, sys.executable, "-m", module, *sys.argv[1:]], environment)


def _open_network() -> None:
    _run("mount", "-t", "tmpfs", "tmpfs", "/run")  # The directory of named namespaces.
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", _BRIDGE, "type", "bridge")
    _run("ip", "address", "add", f"{OUTSIDE}/24", "dev", _BRIDGE)
    _run("ip", "link", "set", _BRIDGE, "up")


class Host:
    """One host, with an address of its own."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.address = f"10.77.0.{number}"
        self.prefix = ("nsenter", f"--net=/run/netns/{name}", "--")
        self.is_cut = False
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        _run("ip", "link", "set", name, "master", _BRIDGE, "up")
        self._run("link", "set", "lo", "up")
        self._run("address", "add", f"{self.address}/24", "dev", "eth0")
        self._run("link", "set", "eth0", "up")

    def tune(self, **settings: int) -> None:
        """Set parameters of the host's TCP stack, as an operator does by sysctl."""
        for name, value in settings.items():
            path = f"/proc/sys/net/ipv4/tcp_{name}"
            # If a parameter cannot be set, requests only wait longer for a web process whose host is gone.
            with contextlib.suppress(NotPermitted):
                _run(*self.prefix, "sh", "-c", f"echo {value} > {path}")

    def cut(self) -> None:
        """Cut the host off from all others; no connection is notified."""
        self.is_cut = True
        _run("ip", "link", "set", self.name, "down")

    def mend(self) -> None:
        """Connect the host again."""
        self.is_cut = False
        _run("ip", "link", "set", self.name, "up")

    def part_from(self, other: "Host") -> None:
        """Cut the host off from one other host, in both directions."""
        for one, another in ((self, other), (other, self)):
            one._run(
                "neighbour", "replace", another.address, "lladdr", _NOBODY, "dev", "eth0", "nud", "permanent"
            )

    def rejoin(self, other: "Host") -> None:
        """Connect both hosts again."""
        for one, another in ((self, other), (other, self)):
            one._run("neighbour", "del", another.address, "dev", "eth0")

    def kill(self) -> None:
        """Cut the host off and kill everything on it, as in a power failure."""
        self.cut()
        pids = _run("ip", "netns", "pids", self.name).split()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def _run(self, *arguments: str) -> None:
        _run("ip", "-netns", self.name, *arguments)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotPermitted(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
