"""Read a message from the command line, for commands beside the installation and over REST."""

from typing import Any

import click

from shared.a2a import exact_json


def read_message(text: str | None, message: str | None) -> dict[str, Any]:
    """Read what the agent is told, as text or as JSON."""
    if (text is None) == (message is None):
        raise click.UsageError("Give --text or --message.")
    if message is None:
        return {"parts": [{"text": text}]}
    try:
        read = exact_json.parse(message)
    except ValueError as error:
        raise click.BadParameter(f"is not JSON: {error}", param_hint="--message") from error
    if not isinstance(read, dict):
        raise click.BadParameter("must be a JSON object", param_hint="--message")
    return read
