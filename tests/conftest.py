"""What every test may ask for, and how the tests are shared between processes."""

import gc
import os
from collections.abc import Generator

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from shared.gc_tuning import freeze_loaded_objects

pytest_plugins = [
    "tests.support.servers",
    "tests.support.databases",
    "tests.support.front",
    "tests.support.watched_processes",
    "tests.contracts.s3_servers",
    "tests.shared.egress.servers",
]

STACKS = ("tests/journeys/models/", "tests/journeys/", "tests/clients/", "sdk/tests/live/")
"""Folders whose tests share processes of the service: one process runs all of a folder, so that they start once."""
LONGEST = (
    *("tests/journeys/models/", "tests/journeys/", "tests/chaos/", "tests/contracts/test_blob_store.py"),
    *(
        "tests/web/files/test_owner_scope.py",
        "tests/deploy/",
        "tests/clients/",
        "sdk/tests/live/",
        "tests/web/test_list_plans.py",
    ),
    *("tests/web/test_admission.py", "tests/web/identity/test_administration_matrix.py"),
)
"""What is begun first, so that in the end no process has a long file left while others have nothing to do."""


class ByStack(LoadScopeScheduling):  # type: ignore[misc] # untyped
    """Gives a file to one process, and likewise a folder with a stack; first come, first served."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((folder for folder in STACKS if file.startswith(folder)), file)


def pytest_configure(config: pytest.Config) -> None:
    """Trace the processes of the tests alone, not what they start, which has its time to keep."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", 0):
        os.environ.pop("COVERAGE_PROCESS_START", None)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByStack | None:
    if config.option.dist != "loadfile":
        return None
    config.option.loadscopereorder = False
    return ByStack(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        found = (at for at, folder in enumerate(LONGEST) if item.nodeid.startswith(folder))
        return next(found, len(LONGEST))

    items.sort(key=rank)
    unstable = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if unstable:  # its name is another in each process, and no process would begin
        raise pytest.UsageError(f"a parameter needs an id: {unstable[0]}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage meanwhile: nearly all that is made, stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Spare the collector what stays to the end, thousands of tests and all modules, and let it look less often."""
    freeze_loaded_objects()
