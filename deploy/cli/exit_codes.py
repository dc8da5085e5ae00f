"""Exit codes of the command line. The help page and the reference are generated from this table."""

from collections.abc import Mapping
from enum import IntEnum

import click

from shared.errors import DomainError, Kind


class ExitCode(IntEnum):
    """The result of a command, as its process status."""

    DONE = 0
    FAILED = 1
    # The code that click itself uses for a wrong command line.
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
# Scripts retry on TRY_LATER only. A kind that is not listed would fail again in the same way.
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
    """Return the failure that reports a domain error: its code, detail and invalid fields."""
    fields = "".join(f" {at.name} {at.message}." for at in error.errors)
    return Failure(f"{error.code}: {error.detail}{fields}", _BY_KIND.get(error.kind, ExitCode.FAILED))


def exit_code_table() -> str:
    """Return the list of exit codes for the help page."""
    lines = (f"  {code:d}  {meaning.replace('`', '')}" for code, meaning in MEANINGS.items())
    return "\b\nExit codes:\n" + "\n".join(lines)
