"""The examples that client developers copy are good, and nothing that a script may hold goes undescribed."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from shared.a2a import behaviors
from shared.a2a.behaviors import script_schema
from shared.a2a.behaviors.script_parser import parse_script
from shared.a2a.behaviors.script_schema import ErrorTable, ScriptTables, StepTable

README = Path(str(behaviors.__file__)).with_name("README.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_a_script(example: str) -> None:
    assert parse_script(example).rules


def test_the_examples_use_every_step() -> None:
    shown = "\n".join(EXAMPLES)
    for step in StepTable.model_fields:
        assert re.search(rf"- {step}:", shown) or f"`{step}" in README, step


def test_every_key_and_every_error_is_described() -> None:
    tables = [
        table
        for table in vars(script_schema).values()
        if isinstance(table, type) and issubclass(table, BaseModel)
    ]
    assert ScriptTables in tables
    for table in tables:
        for name, field in table.model_fields.items():
            key = field.alias or name
            assert key == "as" or re.search(rf"\b{key}\b", README), f"{table.__name__}.{key}"
    for reason in ErrorTable.model_fields["reason"].annotation.__args__:  # type: ignore[union-attr]
        assert reason in README, reason
