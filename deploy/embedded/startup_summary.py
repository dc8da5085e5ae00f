"""What `make up` tells a person at a terminal: what starts, where it is, what to do next. The logs go to files.

Without a terminal nothing of this is used: the logs are the output. A link to the console signs in, so that it is
printed to a terminal alone.
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
"""A log that is longer is put aside, in place of the one that was put aside before."""
SHOWN_LINES = 15
STYLE = {"done": {"fg": "green"}, "head": {"bold": True}, "soft": {"dim": True}}

LINK_SECONDS = 20
IssueLink = Callable[[Mapping[str, str]], str | None]


class ProgramLogs:
    """A file for each program, below one directory, for its owner's eyes only."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.last: deque[str] = deque(maxlen=SHOWN_LINES)
        self._files: dict[str, TextIO] = {}

    def write(self, name: str, line: str) -> None:
        """Append a line; one that a full disk refuses is lost, and later ones may not be."""
        self.last.append(f"{name}: {line}")
        try:
            file = self._open(name)
            file.write(f"{line}\n")
            file.flush()
        except OSError:
            pass

    def close(self) -> None:
        """Close all."""
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
        if path.exists() and path.stat().st_size >= LOG_BYTES:
            path.rename(path.with_suffix(".log.1"))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._files[name] = os.fdopen(descriptor, "a", encoding="utf-8")
        return self._files[name]


def issue_link(environment: Mapping[str, str]) -> str | None:
    """Issue a link to the console of what runs in this environment; None where nobody may sign in so."""
    command = [str(Path(sys.executable).parent / "quartermaster"), "console", "link"]
    try:
        done = subprocess.run(
            command, env=dict(environment), capture_output=True, timeout=LINK_SECONDS, check=True
        )
        return str(json.loads(done.stdout)["link"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return None


def step(what: str) -> str:
    """Tell that something has started."""
    return f"  {click.style('✓', **STYLE['done'])} {what}"  # type: ignore[arg-type]


def summary(base_url: str, *, link: str | None, credentials: Path, logs: Path, command: str) -> str:
    """Tell where everything is, once all is ready, and three commands to go on with."""
    rows = {
        "Console": f"{link}  (good once, for ten minutes)" if link else f"{base_url}/console",
        "Reference": f"{base_url}/docs",
        "Credentials": str(credentials),
        "Logs": f"{logs}/",
    }
    told = [f"  {_styled(f'{name:<12}', 'head')} {value}" for name, value in rows.items()]
    following = {
        f"{command} status": "what it is at",
        f"{command} console link": "another link to the console",
        f"{command} doctor": "what is wrong, and what mends it",
    }
    width = max(map(len, following))
    told += ["", "  In another terminal:"]
    told += [f"    {each:<{width}}  {_styled(about, 'soft')}" for each, about in following.items()]
    return "\n".join(["", *told, "", f"  {_styled('Ctrl-C stops everything; data stays.', 'soft')}"])


def _styled(text: str, style: str) -> str:
    return click.style(text, **STYLE[style])  # type: ignore[arg-type]
