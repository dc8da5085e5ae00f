"""The output of `make up` at a terminal: progress, addresses, and the next commands. Logs are written to files.

Without a terminal, `make up` prints the logs. The sign-in link of the console is printed only at a terminal, because
logs must not contain the link.
"""

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO

import click

LOG_BYTES = 32 << 20
"""A log that exceeds this size is renamed to `.log.1`, and replaces an earlier file of that name."""
SHOWN_LINES = 15  # the last log lines, printed if the start fails
STYLE = {"done": {"fg": "green"}, "head": {"bold": True}, "soft": {"dim": True}}

LINK_SECONDS = 20
IssueLink = Callable[[Mapping[str, str]], str | None]


class ProgramLogs:
    """A directory with one log file for each program. Only the owner can read the files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.last: deque[str] = deque(maxlen=SHOWN_LINES)
        self._files: dict[str, TextIO] = {}

    def write(self, name: str, line: str) -> None:
        """Append a line to a program's log. If the disk is full, the line is lost and the program continues."""
        self.last.append(f"{name}: {line}")
        try:
            file = self._open(name)
            file.write(f"{line}\n")
            file.flush()
        except OSError:
            pass

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _open(self, name: str) -> TextIO:
        if name in self._files and self._files[name].tell() < LOG_BYTES:
            return self._files[name]
        if name in self._files:
            self._files.pop(name).close()
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.directory / f"{name}.log"
        # Check the size of an existing file too: an earlier run may have left a long log.
        if path.exists() and path.stat().st_size >= LOG_BYTES:
            path.rename(path.with_suffix(".log.1"))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._files[name] = os.fdopen(descriptor, "a", encoding="utf-8")
        return self._files[name]


def issue_link(environment: Mapping[str, str]) -> str | None:
    """Return a sign-in link for the console of the installation in `environment`, or None if the command fails."""
    # Run a separate process: commands read settings from their environment, and this process has the caller's
    # environment.
    command = [str(Path(sys.executable).parent / "quartermaster"), "console", "link"]
    try:
        done = subprocess.run(
            command, env=dict(environment), capture_output=True, timeout=LINK_SECONDS, check=True
        )
        return str(json.loads(done.stdout)["link"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return None


def step(text: str) -> str:
    """Return the line that reports a finished step of the start."""
    return f"  {click.style('✓', **STYLE['done'])} {text}"  # type: ignore[arg-type]


def summary(base_url: str, *, link: str | None, credentials: Path, logs: Path, command: str) -> str:
    """Return the summary of a ready installation: addresses, files, and the next commands."""
    rows = {
        "Console": f"{link}  (works once, within ten minutes)" if link else f"{base_url}/console",
        "API": f"{base_url}/docs",
        "Credentials": str(credentials),
        "Logs": f"{logs}/",
    }
    lines = [f"  {_styled(f'{name:<12}', 'head')} {value}" for name, value in rows.items()]
    following = {
        f"{command} status": "processes and backlogs",
        f"{command} console link": "a new sign-in link for the console",
        f"{command} doctor": "health checks, with remedies",
    }
    width = max(map(len, following))
    lines += ["", "  In another terminal:"]
    lines += [f"    {each:<{width}}  {_styled(about, 'soft')}" for each, about in following.items()]
    return "\n".join(
        ["", *lines, "", f"  {_styled('Ctrl-C stops all processes; the data is kept.', 'soft')}"]
    )


def _styled(text: str, style: str) -> str:
    return click.style(text, **STYLE[style])  # type: ignore[arg-type]
