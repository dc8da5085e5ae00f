"""The model catalog of an installation: each workload adds its providers and models before the first process starts."""

from pathlib import Path

from tests.support.processes.stack import Stack

_SETTING = "MODELS_CONFIG"


def offer(stack: Stack, text: str) -> None:
    """Add providers and models."""
    catalog = stack.directory / "models.toml"
    with catalog.open("a") as file:
        file.write(text)
    stack.environment[_SETTING] = str(catalog)


def is_offered(stack: Stack, model_id: str) -> bool:
    """Return whether a workload has added a model."""
    catalog = stack.environment.get(_SETTING)
    return catalog is not None and f'id = "{model_id}"' in Path(catalog).read_text()
