"""The client threads of all workloads: start them, stop them, and compare what they know with the stored state."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from tests.chaos.background_work import CREDITS, FILES, BackgroundWork
from tests.chaos.installation import Installation
from tests.chaos.ledger_check import find_ledger_faults
from tests.chaos.retrying_client import GIVE_UP_SECONDS
from tests.chaos.run_report import RunReport
from tests.chaos.workload import Person, Workload
from tests.support.processes.stack import Stack, TookTooLong

FINISH_SECONDS = 2 * GIVE_UP_SECONDS
SETTLE_SECONDS = 60.0


def background_work_of(stack: Stack, workloads: Sequence[type[Workload]]) -> BackgroundWork:
    """Return the pending background work of these workloads."""
    waiting = [FILES, CREDITS, *(each for work in workloads for each in work.waiting)]
    return BackgroundWork(stack, list(dict.fromkeys(waiting)))


class Crowd:
    """The client threads of one run."""

    def __init__(
        self,
        installation: Installation,
        workloads: Sequence[Workload],
        background_work: BackgroundWork,
        run_report: RunReport,
    ) -> None:
        self._installation = installation
        self._workloads = workloads
        self._background_work = background_work
        self._run_report = run_report
        self._over = threading.Event()
        self._people: Sequence[Person] = ()
        self._threads: list[threading.Thread] = []

    def begin(self) -> None:
        """Start all threads."""
        self._people = [person for work in self._workloads for person in work.begin()]
        self._threads = [
            threading.Thread(target=person.run_until, args=(self._over,), daemon=True)
            for person in self._people
        ]
        for thread in self._threads:
            thread.start()

    def let_finish(self) -> None:
        """Ask all threads to begin nothing new."""
        self._over.set()

    def finish(self) -> None:
        """Wait until all threads have finished."""
        self._join(self._threads, "finishing its last operation")
        self._run_report.note("clients done")

    def compare(self, find_faults: Callable[[], Iterable[str]], *, meanwhile: Callable[[], None]) -> None:
        """Finish background work, have every client verify, and compare.

        `meanwhile` is called repeatedly and keeps the service running.
        """
        observations = self._installation.observations
        try:
            self._background_work.finish(seconds=SETTLE_SECONDS, meanwhile=meanwhile)
        except TookTooLong as error:
            observations.violate(str(error))
        self._run_report.note("settled")
        threads = [threading.Thread(target=person.verify, daemon=True) for person in self._people]
        for thread in threads:
            thread.start()
        self._join(threads, "verifying")
        self._run_report.note("verified")
        faults = [fault for work in self._workloads for fault in work.compare()]
        for fault in (*find_faults(), *faults, *find_ledger_faults(self._installation)):
            observations.violate(fault)

    def _join(self, threads: Sequence[threading.Thread], what: str) -> None:
        give_up_at = time.monotonic() + FINISH_SECONDS
        for thread in threads:
            thread.join(max(0.0, give_up_at - time.monotonic()))
            if thread.is_alive():
                self._installation.observations.violate(f"a client is still {what}")
