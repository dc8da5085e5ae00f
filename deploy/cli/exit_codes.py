"""The exit codes of the command, listed here alone: the help, the docs and the code take them from this table."""

from collections.abc import Mapping
from enum import IntEnum

import click

from shared.errors import DomainError, Kind


class ExitCode(IntEnum):
    """How a command ended."""

    DONE = 0
    FAILED = 1
    WRONG_USAGE = 2
    NOT_SIGNED_IN = 3
    TRY_LATER = 4


MEANINGS: Mapping[ExitCode, str] = {
    ExitCode.DONE: "Done.",
    ExitCode.FAILED: "Refused or failed; the message says why. `doctor`: something is wrong.",
    ExitCode.WRONG_USAGE: "The command line is wrong; nothing was done.",
    ExitCode.NOT_SIGNED_IN: "No credential, or one that the service does not accept: `quartermaster login`.",
    ExitCode.TRY_LATER: "The service cannot be reached, is overloaded, or asks to try again later.",
}
_BY_KIND = {
    Kind.UNAUTHENTICATED: ExitCode.NOT_SIGNED_IN,
    Kind.LIMITED: ExitCode.TRY_LATER,
    Kind.UNAVAILABLE: ExitCode.TRY_LATER,
}


class Failure(click.ClickException):
    """Ends the command with one line and an exit code."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc] # click itself reads it of the instance


def failure_of(error: DomainError) -> Failure:
    """Tell what the domain refused."""
    fields = "".join(f" {at.name} {at.message}." for at in error.errors)
    return Failure(f"{error.code}: {error.detail}{fields}", _BY_KIND.get(error.kind, ExitCode.FAILED))


def exit_code_table() -> str:
    """List the exit codes for the help."""
    lines = (f"  {code:d}  {meaning.replace('`', '')}" for code, meaning in MEANINGS.items())
    return "\b\nExit codes:\n" + "\n".join(lines)
