"""Print a model's reply while the reply arrives: text to standard output, then tokens and cost to the error output."""

import sys
from collections.abc import Mapping
from typing import Any

import click

from deploy.cli.display.output import is_terminal
from deploy.cli.exit_codes import Failure

_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


def read_text(text: str | None) -> str:
    """Return the text argument, or the text of standard input if the argument is missing or `-`."""
    if text is not None and text != "-":
        return text
    if sys.stdin.isatty():
        click.echo("Enter the text; end with Ctrl-D on an empty line.", err=True)
    return sys.stdin.read()


def write_piece(piece: str) -> None:
    """Write and flush untrusted text. At a terminal, replace the control characters of the text."""
    # Replace control characters only at a terminal: a file or a pipe must receive exactly the model's text.
    if is_terminal():
        from deploy.cli.display.table_output import plain_text

        piece = plain_text(piece)
    sys.stdout.write(piece)
    sys.stdout.flush()


class ReplyWriter:
    """Prints the events of a streamed response from `/v1/responses`. If `is_quiet`, it prints no text."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._response: dict[str, Any] = {}

    def handle(self, event: Mapping[str, Any]) -> None:
        """Print the text of the next event. Raises Failure for an error event."""
        kind = event.get("type")
        if kind == "response.output_text.delta" and not self._is_quiet:
            write_piece(event["delta"])
        # Keep the response of the last event: only that event contains the whole response with usage and cost.
        elif kind in _ENDS:
            self._response = event["response"]
        elif kind == "error":
            raise Failure(f"{event.get('code')}: {event.get('message')}")

    def finish(self) -> dict[str, Any]:
        """Print tokens and cost, and return the response. Raises Failure if the response failed or is incomplete."""
        if not self._is_quiet:
            click.echo()
        if usage := self._response.get("usage"):
            summary = f"{usage['input_tokens']} input tokens, {usage['output_tokens']} output tokens"
            cost = f", {usage['cost']} credits" if "cost" in usage else ""
            click.secho(f"{self._response.get('model')}: {summary}{cost}", err=True, dim=True)
        error = self._response.get("error")
        if error:
            raise Failure(f"{error.get('code')}: {error.get('message')}")
        # Check that the last event has arrived: if the connection ends between two events, the client raises no error.
        if not self._response:
            raise Failure("The stream ended before the reply was complete; send the request again.")
        return self._response
