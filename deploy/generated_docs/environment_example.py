"""Generate `environment.example`, which lists every setting with description and default, in groups.

The groups are those of `settings.py`. The end of the file is written by hand and kept: it lists the variables of single
processes and of `make up`.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from shared.config.settings import Settings

EXAMPLE = Path(__file__).parents[1] / "environment.example"
BY_HAND = "## Only the processes, and `make up`\n"
INTRODUCTION = """\
# All settings of the service with their defaults. Settings without a leading `#` are required. Instead of a variable,
# you can mount a file with its name in lower case in /run/secrets.
"""
_HEADING = re.compile(r"\n\n    # (.+)\n\n")


def render() -> str:
    """Return the content that `environment.example` should have."""
    by_hand = EXAMPLE.read_text().partition(BY_HAND)[2]
    groups = (_render_group(heading, meanings) for heading, meanings in read_groups())
    return "\n".join((INTRODUCTION, *groups, BY_HAND)) + by_hand


def read_groups() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each group of settings: the heading, and a dictionary of setting names and descriptions."""
    _, *groups = _HEADING.split(inspect.getsource(Settings))
    # Read the descriptions from the source text, because Pydantic drops the docstrings of fields.
    for heading, fields in zip(groups[::2], groups[1::2], strict=True):
        yield heading, _read_descriptions(fields)


def _read_descriptions(source: str) -> dict[str, str]:
    statements = ast.parse(inspect.cleandoc(source)).body
    return {
        field.target.id: str(meaning.value.value)
        for field, meaning in pairwise(statements)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(meaning, ast.Expr)
        and isinstance(meaning.value, ast.Constant)
    }


def _render_group(heading: str, meanings: dict[str, str]) -> str:
    lines = [f"## {heading}\n"]
    for name, meaning in meanings.items():
        field = Settings.model_fields[name]
        written = "" if field.is_required() else _write(field.default)
        lines += [f"# {meaning}", f"{'' if field.is_required() else '#'}{name.upper()}={written}"]
    return "\n".join(lines) + "\n"


def _write(default: object) -> str:
    if default is None:
        return ""
    if isinstance(default, tuple):
        return ",".join(default)
    return str(default).lower() if isinstance(default, bool) else str(default)


if __name__ == "__main__":
    EXAMPLE.write_text(render())
