"""Summaries of operations and help texts of commands begin with a standard verb."""

import ast
import re
from collections.abc import Iterator

import click

from deploy.cli.main import main
from tests.architecture.test_references import texts
from tests.architecture.test_rules import sources
from tests.support.web.web_process import Front

# Verbs that readers search for. Add one only if it is common in the field and none of these has its meaning.
_VERBS = """
Accept Activate Add Cancel Check Confirm Copy Create Delete Describe Disable Download Enable Encrypt Exchange Get Import
List Migrate Push Remove Renew Replace Replay Resume Retry Revoke Rotate Run Send Set Subscribe Suspend Update Upload
"""
VERBS = frozenset(_VERBS.split())
OF_GROUPS = VERBS | {"Manage"}
UNUSUAL = ("whoever", "look after", "for good", "worthless")


def commands(command: click.Command, path: str = "quartermaster") -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its path: groups included, the program itself left out."""
    if not isinstance(command, click.Group):
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield f"{path} {name}", inner
        yield from commands(inner, f"{path} {name}")


def first_word(text: str) -> str:
    return (text.split() or [""])[0]


def test_every_operation_s_summary_begins_with_a_standard_verb(front: Front) -> None:
    document = front.get("/openapi.json").json
    assert document is not None
    summaries = {
        f"{method} {path}": operation["summary"]
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert len(summaries) > 100
    assert {at: text for at, text in summaries.items() if first_word(text) not in VERBS} == {}
    assert {at: text for at, text in summaries.items() if any(word in text.lower() for word in UNUSUAL)} == {}


def test_every_command_s_help_begins_with_a_standard_verb() -> None:
    helps = {path: (command, command.help or "") for path, command in commands(main)}
    assert len(helps) > 80
    for path, (command, text) in helps.items():
        assert first_word(text) in (OF_GROUPS if isinstance(command, click.Group) else VERBS), (path, text)
        assert not any(word in text.lower() for word in UNUSUAL), (path, text)


def test_every_option_of_a_command_has_its_help() -> None:
    options = {
        f"{path} {option.opts[0]}": option.help
        for path, command in commands(main)
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
    }
    assert len(options) > 200
    assert [at for at, text in options.items() if not text] == []


def test_undocumented_routes_and_commands_have_a_summary_or_help() -> None:
    """A route has its `summary` and a command its `help`. Both are for users; a docstring is for maintainers."""
    saying = re.compile(r"\b(summary|help)=")
    silent = [
        f"{path}: {function.name}"
        for path, source in sources()
        if path.parts[0] == "web" or path.parts[:2] == ("deploy", "cli")
        for function in ast.parse(source).body
        if isinstance(function, ast.FunctionDef)
        and not function.name.startswith("_")
        and ast.get_docstring(function) is None
        and not any(saying.search(ast.unparse(decorator)) for decorator in function.decorator_list)
    ]
    assert silent == []


def test_no_text_uses_the_word_whoever() -> None:
    """Name the actor instead: a caller, a worker, a process, an organization."""
    said = [
        path
        for path, text in texts()
        if not path.startswith(("tests/", "shared/migrations/")) and "whoever" in text.lower()
    ]
    assert said == []
