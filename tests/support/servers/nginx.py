"""A real nginx with the shipped configuration, in a directory of its own."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from deploy.embedded.ports import find_free_port

SHIPPED = Path(__file__).resolve().parents[3] / "deploy" / "nginx"
CONFIGURATION = SHIPPED / "quartermaster.conf"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@contextlib.contextmanager
def running_nginx(directory: Path, *service_ports: int, error_level: str = "crit") -> Iterator[int]:
    """Run nginx before the web processes at these local ports; yield its port."""
    port = find_free_port()
    nginx = subprocess.Popen(
        nginx_command(
            directory,
            listen=f"127.0.0.1:{port}",
            services=[f"127.0.0.1:{each}" for each in service_ports],
            error_level=error_level,
        )
    )
    try:
        _wait_for(port)
        yield port
    finally:
        nginx.terminate()
        nginx.wait(60)


def nginx_command(
    directory: Path, *, listen: str, services: Sequence[str], error_level: str = "crit"
) -> list[str]:
    """Write a configuration for these addresses into the directory; return the command that runs it.

    The log at the shipped `error_level` does not contain the reason of a failed request.
    """
    ours = {
        f"server 127.0.0.1:8080 {parameters};": " ".join(
            f"server {service} {parameters};" for service in services
        )
        for parameters in ("fail_timeout=1s", "max_fails=0 backup")
    } | {
        "listen 80;": f"listen {listen};",
        "quartermaster.error.log crit;": f"quartermaster.error.log {error_level};",
        "/var/log/nginx/": f"{directory}/",
        "/var/lib/quartermaster/blobs/": f"{directory}/blobs/",
    }
    (directory / "quartermaster.conf").write_text(_changed(CONFIGURATION, ours))
    main = {
        "user quartermaster;": "user root;" if os.geteuid() == 0 else "",
        "worker_processes auto;": "daemon off;",
        "/run/nginx.pid": f"{directory}/pid",
        "/var/log/nginx/error.log": f"{directory}/error.log",
        "include mime.types;": "".join(f"{name}_temp_path {directory}/{name};" for name in TEMPORARY),
        "conf.d/*.conf": f"{directory}/quartermaster.conf",
    }
    (directory / "nginx.conf").write_text(_changed(SHIPPED / "nginx.conf", main))
    return [str(NGINX), "-p", str(directory), "-c", str(directory / "nginx.conf")]


def _changed(path: Path, changes: dict[str, str]) -> str:
    text = path.read_text()
    for stated, actual in changes.items():
        assert stated in text
        text = text.replace(stated, actual)
    return text


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError("nginx does not listen")
