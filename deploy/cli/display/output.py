"""Choose the output format of all commands: a table at a terminal, otherwise JSON, or one field with `--field`."""

import json
import sys
from collections.abc import Mapping
from typing import Any

import click

JSON_FLAG = "--json"
FIELD_OPTION = "--field"
_AS_JSON = "quartermaster.as_json"
_FIELD = "quartermaster.field"


def take_output_options(context: click.Context, arguments: list[str]) -> list[str]:
    """Return the arguments without `--json` and `--field PATH`, and record both in the context.

    Both options may be anywhere before `--`. Raises BadOptionUsage if `--field` has no value.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept = []
    words = iter(arguments[:end])
    for word in words:
        name, equals, value = word.partition("=")
        if word == JSON_FLAG:
            context.meta[_AS_JSON] = True
        elif name == FIELD_OPTION:
            path = value if equals else next(words, "")
            if not path:
                raise click.BadOptionUsage(
                    FIELD_OPTION, "Option '--field' requires the path of a field, as `id`."
                )
            context.meta[_FIELD] = path
        else:
            kept.append(word)
    return kept + arguments[end:]


def print_document(shown: Mapping[str, Any]) -> None:
    """Print a command's result as a table or as JSON, or only the field that `--field` names.

    Raises ClickException if the result has no such field.
    """
    context = click.get_current_context(silent=True)
    path = context.meta.get(_FIELD) if context is not None else None
    if path is not None:
        click.echo(_field(shown, path))
    elif is_interactive():
        # Import here: processes of the service start through this program and do not need the table library.
        from rich.console import Console

        from deploy.cli.display.table_output import render

        render(shown, Console())
    else:
        click.echo(json.dumps(shown, indent=2))


def is_interactive() -> bool:
    """Return whether the output is a terminal and `--json` is not set."""
    return is_terminal() and not is_json_requested()


def is_json_requested() -> bool:
    """Return whether the command line has `--json`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_AS_JSON))


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()


def _field(document: Mapping[str, Any], path: str) -> str:
    """Return a field as text: a string unchanged, other values as JSON. Raises ClickException if it is missing."""
    value: Any = document
    for step in path.split("."):
        try:
            # Convert the step to a position if the value is a list, so that `files.0.id` selects an item.
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (IndexError, KeyError, TypeError, ValueError):
            # Print the whole result: the command has taken effect, and the result may contain a secret shown only once.
            click.echo(json.dumps(document, indent=2), err=True)
            raise click.ClickException(
                f"The command succeeded, but its result, printed above, has no field `{path}`: do not repeat it."
            ) from None
    return value if isinstance(value, str) else json.dumps(value, indent=2)
