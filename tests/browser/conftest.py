"""The browser that the tests drive. Without it they are skipped."""

import shutil

import pytest

from tests.openapi.conftest import node, tools

__all__ = ["node", "tools"]


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the path of Debian's Chromium, or of another one."""
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    browser = next(filter(None, found), None)
    if browser is None:
        pytest.skip("no Chromium: pages are not looked at")
    return browser
