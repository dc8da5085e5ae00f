"""nginx as a yardstick: WebDAV PUT, static files, and the reverse proxy that sends the product's content."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.support.processes.stack import free_port, wait_until

CONFIGURATION = """\
daemon off;
{user}
worker_processes 2;
pid {directory}/nginx.pid;
error_log {directory}/error.log error;
events {{ worker_connections 512; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    client_max_body_size 0;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    upstream front {{ server 127.0.0.1:{front_port}; keepalive 16; }}
    server {{
        listen 127.0.0.1:{port};
        location /dav/ {{ alias {directory}/dav/; dav_methods PUT DELETE; }}
        location /static/ {{ alias {blobs}/; }}
        location /_blobs/ {{ internal; alias {blobs}/; etag off; if_modified_since off; }}
        location / {{ proxy_pass http://front; proxy_http_version 1.1; proxy_set_header Connection ""; }}
    }}
}}
"""


class Nginx:
    """One nginx in a directory of its own."""

    def __init__(self, program: str, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def find(cls, directory: Path) -> Nginx | None:
        """Return an nginx with WebDAV. Install Debian's if that is permitted."""
        if (program := _find_program()) is None:
            _install()
            program = _find_program()
        return cls(program, directory) if program else None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *, blobs: Path, front_port: int) -> None:
        """Start it: `/dav/` accepts files, `/static/` serves the blobs, other paths go to the web process."""
        (self.directory / "dav").mkdir(parents=True)
        path = self.directory / "nginx.conf"
        path.write_text(
            CONFIGURATION.format(
                user="user root;" if os.geteuid() == 0 else "",
                directory=self.directory,
                port=self.port,
                blobs=blobs,
                front_port=front_port,
            )
        )
        self._process = subprocess.Popen([self._program, "-p", str(self.directory), "-c", str(path)])
        wait_until((self.directory / "nginx.pid").exists, "nginx starts")

    def stop(self) -> None:
        """Stop it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


def _find_program() -> str | None:
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if program is None:
        return None
    about = subprocess.run([program, "-V"], capture_output=True, text=True, check=False).stderr
    return program if "--with-http_dav_module" in about else None


def _install() -> None:
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        return
    for command in (["update"], ["install", "-y", "--no-install-recommends", "nginx"]):
        subprocess.run(
            [apt, "-q", *command],
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
