"""Fixtures for all tests of the SDK."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from quartermaster import _retries
from sdk.tests.forms import connect
from sdk.tests.scripted_service import ScriptedService

__all__ = ["connect"]


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    """Run a service with the responses that the test sets."""
    with ScriptedService().running() as running:
        yield running


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pauses between retries very short."""
    monkeypatch.setattr(_retries, "SHORTEST_SECONDS", 0.001)
