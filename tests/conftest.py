"""Fixtures for every test, and how the tests are distributed over processes."""

import gc
import os
import ssl
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from functools import cache, partial
from typing import Any, NoReturn

import certifi
import coverage
import pytest
from execnet import XSpec
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from shared.runtime.gc_tuning import ALLOCATIONS
from tests.support.processes import process_forks
from tests.support.processes.compiled_tests import compile_tests
from tests.support.processes.forked_workers import collect_for_all
from tests.support.servers.prepared_postgres import prepare as prepare_postgres

pytest_plugins = [
    "tests.support.servers.run_servers",
    "tests.support.servers.rabbitmq",
    "tests.support.servers.databases",
    "tests.support.web.web_process",
    "tests.support.processes.checked_processes",
    "tests.contracts.s3_servers",
    "tests.shared.egress.servers",
]

STACKS = ("tests/brokers/", "tests/journeys/models/", "tests/journeys/", "tests/clients/", "sdk/tests/live/")
"""Folders whose tests share processes of the service: one process runs all of a folder, so that they start once."""
JOINING = {
    "tests/shared/messaging/test_tls.py": "tests/brokers/",
    "tests/chaos/strikes/test_interceptors.py": "tests/brokers/",
} | dict.fromkeys(
    (
        *("tests/shared/files/blobs/test_s3.py", "tests/shared/files/maintenance/test_store_audit.py"),
        *(
            "tests/shared/files/maintenance/test_store_migration.py",
            "tests/shared/media/importing/test_killed_workers.py",
        ),
        "tests/web/files/test_waiting.py",
    ),
    "tests/contracts/test_blob_store.py",
)
"""Files elsewhere that need what such a folder, or another file, starts: servers of S3 take seconds."""
WAITING = (
    *(
        "tests/journeys/models/",
        "tests/journeys/",
        "tests/deploy/embedded/test_up.py",
        "tests/brokers/",
        "tests/chaos/",
        "tests/clients/",
    ),
    *("sdk/tests/live/", "tests/contracts/test_blob_store.py", "tests/deploy/", "tests/shared/a2a/remote/"),
    "tests/web/files/test_shared_links.py",
)
"""What waits more than it computes, the longest first: every other process begins with it."""
COMPUTING = (
    *("tests/web/framework/test_admission.py", "tests/web/test_cross_organization.py"),
    *("tests/web/files/test_owner_scope.py", "tests/web/identity/test_administration_matrix.py"),
    "tests/web/test_list_plans.py",
)
"""What computes the most, the longest last: the other processes begin at the end, so the cores have work throughout."""


class ByStack(LoadScopeScheduling):  # type: ignore[misc] # untyped
    """Assigns each file to one process, and likewise each folder that shares a stack.

    Half of the processes take from the start of the list and half from its end, until they meet at short tests.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return JOINING.get(file) or next((folder for folder in STACKS if file.startswith(folder)), file)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if self.workqueue and self.nodes.index(node) % 2:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def pytest_configure(config: pytest.Config) -> None:
    """Trace only the test processes. The processes they start are not traced, because they have timeouts to keep."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", 0):
        os.environ.pop("COVERAGE_PROCESS_START", None)
    sys.addaudithook = _refuse_audit_hook  # type: ignore[assignment] # it takes none
    _share_public_authorities()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Write the trace before the process reports its end: the controller then gives it ten seconds to exit."""
    if tracer := coverage.Coverage.current():
        tracer.stop()
        tracer.save()


def _refuse_audit_hook(*_: object) -> NoReturn:
    """Refuse to install an audit hook: `sys.settrace` calls audit hooks, and these let other threads run.

    Until 3.12, CPython then fails a thread that begins to be traced meanwhile: it ends before its first line. A hook
    cannot be removed, and stays for all later tests (https://github.com/python/cpython/issues/98257).
    """
    raise RuntimeError("no process of the tests has an audit hook: traced threads would fail to begin")


def _share_public_authorities() -> None:
    """Share one TLS context between all HTTP clients of the tests: loading all authorities takes 30 ms of CPU.

    None of these authorities signs a server of the tests, and no client changes the context.
    """
    create = ssl.create_default_context
    authorities = os.environ.get("SSL_CERT_FILE") or certifi.where()
    of_the_public = cache(partial(create, cafile=authorities))

    def create_default_context(*args: Any, **named: Any) -> ssl.SSLContext:
        is_of_the_public = not args and named == {"cafile": authorities}
        return of_the_public() if is_of_the_public else create(*args, **named)

    ssl.create_default_context = create_default_context


def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[XSpec]) -> None:
    """Create what all processes need once, in parallel."""
    compile_tests(config.rootpath)
    leaving = ExitStack()
    config.add_cleanup(leaving.close)
    process_forks.start_origin(leaving)
    make_postgres = prepare_postgres(leaving)
    collect_for_all(config, specs, leaving)
    make_postgres()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByStack | None:
    if config.option.dist != "loadfile":
        return None
    config.option.loadscopereorder = False
    return ByStack(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)
    unstable = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if unstable:  # A parametrized id that differs between processes stops xdist at collection.
        raise pytest.UsageError(f"a parameter needs an id: {unstable[0]}")


def _rank(item: pytest.Item) -> int:
    """Return the sort key of a test: those that wait come first, those that compute last."""
    waits = (at - len(WAITING) for at, folder in enumerate(WAITING) if item.nodeid.startswith(folder))
    computes = (at + 1 for at, file in enumerate(COMPUTING) if item.nodeid.startswith(file))
    return next(waits, next(computes, 0))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disable garbage collection during collection: nearly all new objects stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Drop the captured log of tests that passed: xdist sends it with each of a test's three reports."""
    report = yield
    if report.passed:
        report.sections.clear()
    return report


def pytest_collection_finish() -> None:
    """Freeze the objects that stay to the end, tests and modules, and collect garbage less often."""
    gc.freeze()  # freeze() needs no full collection before it, which would take each process a second.
    gc.set_threshold(ALLOCATIONS, 10, 10)
