"""Check repositories out with git: at one ref and without history, or find out which commit a checkout is at."""

import os
import subprocess
from pathlib import Path

GIT_SECONDS = 600


class CheckoutFailed(Exception):
    """git refused; the message is its own."""


def fetch(server: str, repository: str, ref: str | None, directory: Path) -> None:
    """Check a repository out into an empty directory, at its default branch unless a ref is given."""
    _git(directory, "init", "--quiet")
    _git(directory, "fetch", "--quiet", "--depth=1", f"{server.rstrip('/')}/{repository}.git", ref or "HEAD")
    _git(directory, "checkout", "--quiet", "--detach", "FETCH_HEAD")


def describe(directory: Path) -> str:
    """Give the commit of a checkout, and whether its files differ from it."""
    commit = _git(directory, "rev-parse", "HEAD")
    changed = _git(directory, "status", "--porcelain")
    return f"{commit} with changes" if changed else commit


def _git(directory: Path, *arguments: str) -> str:
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "SSH_AUTH_SOCK") if name in os.environ}
    try:
        done = subprocess.run(
            ["git", "-C", str(directory), *arguments],  # noqa: S607 (the system's)
            env={**environment, "GIT_TERMINAL_PROMPT": "0"},
            capture_output=True,
            text=True,
            timeout=GIT_SECONDS,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise CheckoutFailed(f"git {arguments[0]} failed: {error.stderr.strip()}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CheckoutFailed(f"git {arguments[0]} failed: {error}") from error
    return done.stdout.strip()
