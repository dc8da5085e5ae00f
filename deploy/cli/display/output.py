"""How commands show what they found: tables to a person at a terminal, JSON to everything else. Decided here alone."""

import json
import sys
from collections.abc import Mapping
from typing import Any

import click

JSON_FLAG = "--json"
_AS_JSON = "quartermaster.as_json"


def take_json_flag(context: click.Context, arguments: list[str]) -> list[str]:
    """Take `--json` out of a command line, wherever it stands before `--`, and remember it."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if JSON_FLAG in arguments[:end]:
        context.meta[_AS_JSON] = True
    return [word for place, word in enumerate(arguments) if word != JSON_FLAG or place > end]


def print_document(shown: Mapping[str, Any]) -> None:
    """Print what a command found."""
    if is_for_a_person():
        # Here, so that a process of the service does without what draws tables.
        from rich.console import Console

        from deploy.cli.display.table_output import render

        render(shown, Console())
    else:
        click.echo(json.dumps(shown, indent=2))


def is_for_a_person() -> bool:
    """Tell whether a person reads this, who did not ask for JSON."""
    return is_terminal() and not is_json_asked_for()


def is_json_asked_for() -> bool:
    """Tell whether the command line has `--json`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_AS_JSON))


def is_terminal() -> bool:
    """Tell whether the output is one."""
    return sys.stdout.isatty()
