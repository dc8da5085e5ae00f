"""Parse a message to an agent from command-line options. Commands over the database and over REST use this module."""

from typing import Any

import click

from shared.a2a import exact_json


def read_message(text: str | None, message: str | None) -> dict[str, Any]:
    """Return the message of `--text` or `--message`.

    Raises UsageError if neither or both are given, and BadParameter if `--message` is not a JSON object.
    """
    if (text is None) == (message is None):
        raise click.UsageError("Set exactly one of --text and --message.")
    if message is None:
        return {"parts": [{"text": text}]}
    try:
        # Do not use json.loads, which changes numbers: the service keeps numbers as the caller wrote them.
        read = exact_json.parse(message)
    except ValueError as error:
        raise click.BadParameter(f"is not JSON: {error}", param_hint="--message") from error
    if not isinstance(read, dict):
        raise click.BadParameter("must be a JSON object", param_hint="--message")
    return read
