"""A model's answer as it is streamed: its text to the output, and at the end what it cost to the error output."""

import sys
from collections.abc import Mapping
from typing import Any

import click

from deploy.cli.display.output import is_terminal
from deploy.cli.exit_codes import Failure

_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


def read_text(text: str | None) -> str:
    """Give a text that was given, else what comes through standard input."""
    if text is not None and text != "-":
        return text
    if sys.stdin.isatty():
        click.echo("Write, and end with Ctrl-D on an empty line.", err=True)
    return sys.stdin.read()


def write_piece(piece: str) -> None:
    """Write text of others at once; at a terminal nothing in it can move the cursor."""
    if is_terminal():
        from deploy.cli.display.table_output import plain_text

        piece = plain_text(piece)
    sys.stdout.write(piece)
    sys.stdout.flush()


class AnswerWriter:
    """Takes the events of `/v1/responses`."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._response: dict[str, Any] = {}

    def take(self, event: Mapping[str, Any]) -> None:
        """Take the next event; raise `Failure` for an answer that failed."""
        kind = event.get("type")
        if kind == "response.output_text.delta" and not self._is_quiet:
            write_piece(event["delta"])
        elif kind in _ENDS:
            self._response = event["response"]
        elif kind == "error":
            raise Failure(f"{event.get('code')}: {event.get('message')}")

    def finish(self) -> dict[str, Any]:
        """End the line, say what was used, and give the whole response."""
        if not self._is_quiet:
            click.echo()
        if usage := self._response.get("usage"):
            told = f"{usage['input_tokens']} tokens in, {usage['output_tokens']} out"
            cost = f", {usage['cost']} credits" if "cost" in usage else ""
            click.secho(f"{self._response.get('model')}: {told}{cost}", err=True, dim=True)
        error = self._response.get("error")
        if error:
            raise Failure(f"{error.get('code')}: {error.get('message')}")
        if not self._response:
            raise Failure("The answer broke off.")
        return self._response
