"""Exit codes of the command line. The help page and the reference are generated from this table."""

from collections.abc import Mapping
from enum import IntEnum

import click

from shared.errors import DomainError, Kind


class ExitCode(IntEnum):
    """The exit code with which a command's process ends."""

    DONE = 0
    FAILED = 1
    # 2, because click exits with this code if the command line is wrong.
    WRONG_USAGE = 2
    NOT_SIGNED_IN = 3
    TRY_LATER = 4


MEANINGS: Mapping[ExitCode, str] = {
    ExitCode.DONE: "Done.",
    ExitCode.FAILED: "Refused or failed; the message says why. `doctor`: at least one check found an error.",
    ExitCode.WRONG_USAGE: "The command line is invalid; nothing was changed.",
    ExitCode.NOT_SIGNED_IN: "No credential, or one that the service rejects: run `quartermaster login`.",
    ExitCode.TRY_LATER: "The service is unreachable, overloaded or rate limiting; retry later.",
}
# Scripts retry only after TRY_LATER. List an error kind as TRY_LATER only if a retry can succeed.
_BY_KIND = {
    Kind.UNAUTHENTICATED: ExitCode.NOT_SIGNED_IN,
    Kind.LIMITED: ExitCode.TRY_LATER,
    Kind.UNAVAILABLE: ExitCode.TRY_LATER,
}


class Failure(click.ClickException):
    """Ends the command with a one-line message and an exit code."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc] # click reads the instance's attribute


def failure_of(error: DomainError) -> Failure:
    """Return a failure whose message contains the code, detail and invalid fields of a domain error."""
    fields = "".join(f" {at.name} {at.message}." for at in error.errors)
    return Failure(f"{error.code}: {error.detail}{fields}", _BY_KIND.get(error.kind, ExitCode.FAILED))


def exit_code_table() -> str:
    """Return the list of exit codes for the help page."""
    lines = (f"  {code:d}  {meaning.replace('`', '')}" for code, meaning in MEANINGS.items())
    return "\b\nExit codes:\n" + "\n".join(lines)
