"""Check out a git repository without its history, and describe the commit of a checkout."""

import os
import subprocess
from pathlib import Path

GIT_TIMEOUT_SECONDS = 600


class CheckoutFailed(Exception):
    """A git command failed. The message is git's error output."""


def fetch(server: str, repository: str, ref: str | None, directory: Path) -> None:
    """Check out a repository into an empty directory, at `ref` or its default branch. Raises CheckoutFailed."""
    # Do not use `git clone --branch`, which accepts neither a commit id nor a full ref.
    _git(directory, "init", "--quiet")
    _git(directory, "fetch", "--quiet", "--depth=1", f"{server.rstrip('/')}/{repository}.git", ref or "HEAD")
    _git(directory, "checkout", "--quiet", "--detach", "FETCH_HEAD")


def describe(directory: Path) -> str:
    """Return the commit of a checkout, with the suffix "with changes" if the files differ from the commit."""
    commit = _git(directory, "rev-parse", "HEAD")
    changed = _git(directory, "status", "--porcelain")
    return f"{commit} with changes" if changed else commit


def _git(directory: Path, *arguments: str) -> str:
    # Pass only these variables: others contain secrets of the service, which git and its hooks do not need.
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "SSH_AUTH_SOCK") if name in os.environ}
    try:
        done = subprocess.run(
            ["git", "-C", str(directory), *arguments],  # noqa: S607 (git of the PATH)
            env={**environment, "GIT_TERMINAL_PROMPT": "0"},  # fail instead of waiting for a password
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_SECONDS,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise CheckoutFailed(f"git {arguments[0]} failed: {error.stderr.strip()}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CheckoutFailed(f"git {arguments[0]} failed: {error}") from error
    return done.stdout.strip()
