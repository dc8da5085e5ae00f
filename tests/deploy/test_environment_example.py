"""`deploy/environment.example` names every setting with its meaning and default, and nothing that is not read.

After a change of the settings, put the text of `described_settings()` into the file.
"""

from __future__ import annotations

import re
from pathlib import Path

from deploy import process_types
from shared.settings import Settings

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
EXAMPLE = (DEPLOY / "environment.example").read_text()
SETTINGS, _, DEPLOYMENT = EXAMPLE.partition("\n## ")

READ = re.compile(r"environ(?:ment)?(?:\.get\(|\[)[\"']([A-Z][A-Z0-9_]+)[\"']")
NAMED = re.compile(r"^#?([A-Z][A-Z0-9_]+)=", re.MULTILINE)
SURROUNDINGS = {"PATH", "HOME", "MAKELEVEL", "BASE_URL", "LOG_LEVEL", "METRICS_DIRECTORY", "WEB_THREADS"}
"""What deployment code reads of the system, or of the service's settings."""


def described_settings() -> str:
    lines = []
    for name, field in Settings.model_fields.items():
        lines.append(f"# {field.description}")
        if field.is_required():
            lines.append(f"{name.upper()}=")
        else:
            lines.append(f"#{name.upper()}={written(field.default)}")
    return "\n".join(lines) + "\n"


def written(default: object) -> str:
    if default is None or default == ():
        return ""
    return str(default).lower() if isinstance(default, bool) else str(default)


def test_every_setting_stands_there_with_its_meaning_and_default() -> None:
    assert SETTINGS.endswith(described_settings())


def test_every_variable_that_deployment_reads_stands_there_and_no_other() -> None:
    sources = [*DEPLOY.glob("*.py"), *DEPLOY.glob("embedded/*.py")]
    read = {name for source in sources for name in READ.findall(source.read_text())}
    read |= {worker.threads_variable for worker in process_types.WORKERS.values()}
    assert set(NAMED.findall(DEPLOYMENT)) == read - SURROUNDINGS


def test_no_variable_stands_there_twice() -> None:
    names = NAMED.findall(EXAMPLE)
    assert len(names) == len(set(names))
