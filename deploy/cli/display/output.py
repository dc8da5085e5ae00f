"""Decide the output format of all commands: tables at a terminal, JSON otherwise or with `--json`."""

import json
import sys
from collections.abc import Mapping
from typing import Any

import click

JSON_FLAG = "--json"
_AS_JSON = "quartermaster.as_json"


def take_json_flag(context: click.Context, arguments: list[str]) -> list[str]:
    """Return the arguments without `--json`, which may be anywhere before `--`, and record it in the context."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if JSON_FLAG in arguments[:end]:
        context.meta[_AS_JSON] = True
    return [word for place, word in enumerate(arguments) if word != JSON_FLAG or place > end]


def print_document(shown: Mapping[str, Any]) -> None:
    """Print a command's result as a table or as JSON."""
    if is_interactive():
        # Imported here: processes of the service start through this program and need no table library.
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
