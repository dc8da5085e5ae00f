"""Generate an example for every command's help page: the command with plausible values of required parameters."""

from collections.abc import Iterator

import click

_ID = "01890000-0000-7000-8000-000000000000"
_BY_NAME = {
    "address": "https://quartermaster.example.org",
    "agent": "default",
    "email": "ada@example.org",
    "name": "Reports",
    "amount": "12.5",
    "reference": "invoice-7",
    "month": "2026-11",
    "cron": '"0 9 * * MON-FRI"',
    "description": '"Writes reports"',
    "model": "acme/one",
    "models": "acme/one",
    "networks": "slack",
    "repository": "acme/reporter",
    "url": "https://agent.example",
    "source": "report.pdf",
    "path": "models.toml",
    "account": "T0123",
    "kid": "key-1",
    "credentials": "credentials.json",
    "text": '"Good morning"',
    "command": "-- python agent.py",
    "flags": "",
}
_ALSO = {
    "behaviors create": "--model acme/one",
    "blob-store adopt": "--yes",
    "distributions update": "--name Support",
    "files put": "--expires-at 2030-01-31T12:00:00Z",
    "files renew": "--for-ever",
    "invitations create": "--email ada@example.org",
    "networks set": "--settings settings.json",
    "notifications set-endpoint": "--url-file url.txt",
    "notifications set-organization-endpoint": "--url-file url.txt",
    "schedules create": '--text "Good morning"',
    "usage": "--window 7d --group-by model",
    "doctor": "--deep",
}
"""For some commands, the optional parameters without which an example would be invalid or useless."""
_OPTIONAL = frozenset({"text"})
"""The names of optional arguments that an example shows although they are optional."""


def add_examples(command: click.Command, path: str) -> None:
    """Add an example to the help page of a command and of all its subcommands."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            add_examples(inner, f"{path} {name}")
    # Add the example only once, because a process may look up a command more than once.
    elif command.epilog is None:
        command.epilog = f"\b\nExample:\n  {example_of(command, path)}"


def example_of(command: click.Command, path: str) -> str:
    """Return an example of a command as a valid shell command line."""
    # Remove the program name from the path, because the keys of _ALSO do not contain it.
    also = [_ALSO.get(path.partition(" ")[2], "")]
    return " ".join(word for word in (path, *_options(command), *also, *_arguments(command)) if word)


def _options(command: click.Command) -> Iterator[str]:
    for option in command.params:
        # Omit required options with a callable default, such as `--organization`: users rarely need them.
        if isinstance(option, click.Option) and option.required and not callable(option.default):
            yield f"{max(option.opts, key=len)} {_value(option)}"


def _arguments(command: click.Command) -> Iterator[str]:
    for argument in command.params:
        if isinstance(argument, click.Argument) and (argument.required or argument.name in _OPTIONAL):
            yield _value(argument)


def _value(parameter: click.Parameter) -> str:
    if isinstance(parameter.type, click.Choice):
        return str(next(iter(parameter.type.choices)))
    if parameter.type is click.UUID:
        return _ID
    if isinstance(parameter.type, click.File):
        return "input.json"
    return _BY_NAME.get(str(parameter.name), "value")
