"""Print a model's reply while it is streamed: text to the output, then tokens and cost to the error output."""

import sys
from collections.abc import Mapping
from typing import Any

import click

from deploy.cli.display.output import is_terminal
from deploy.cli.exit_codes import Failure

_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


def read_text(text: str | None) -> str:
    """Return the text argument, or standard input if it is missing or `-`."""
    if text is not None and text != "-":
        return text
    if sys.stdin.isatty():
        click.echo("Enter the text; end with Ctrl-D on an empty line.", err=True)
    return sys.stdin.read()


def write_piece(piece: str) -> None:
    """Write and flush untrusted text; at a terminal its control characters are replaced."""
    # Only at a terminal: a file or a pipe receives exactly the text of the model.
    if is_terminal():
        from deploy.cli.display.table_output import plain_text

        piece = plain_text(piece)
    sys.stdout.write(piece)
    sys.stdout.flush()


class ReplyWriter:
    """Prints the events of a streamed response of `/v1/responses`; prints no text if `is_quiet`."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._response: dict[str, Any] = {}

    def handle(self, event: Mapping[str, Any]) -> None:
        """Print the text of the next event. Raises Failure for an error event."""
        kind = event.get("type")
        if kind == "response.output_text.delta" and not self._is_quiet:
            write_piece(event["delta"])
        # Only the last event has the complete response, with its usage and cost.
        elif kind in _ENDS:
            self._response = event["response"]
        elif kind == "error":
            raise Failure(f"{event.get('code')}: {event.get('message')}")

    def finish(self) -> dict[str, Any]:
        """Print tokens and cost, and return the whole response. Raises Failure if it failed or is incomplete."""
        if not self._is_quiet:
            click.echo()
        if usage := self._response.get("usage"):
            summary = f"{usage['input_tokens']} input tokens, {usage['output_tokens']} output tokens"
            cost = f", {usage['cost']} credits" if "cost" in usage else ""
            click.secho(f"{self._response.get('model')}: {summary}{cost}", err=True, dim=True)
        error = self._response.get("error")
        if error:
            raise Failure(f"{error.get('code')}: {error.get('message')}")
        # The connection can end between two events, which raises no error in the client.
        if not self._response:
            raise Failure("The stream ended before the reply was complete; send the request again.")
        return self._response
