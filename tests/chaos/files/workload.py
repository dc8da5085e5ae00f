"""The workload of files."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from uuid import UUID

from tests.chaos.background_work import FILES
from tests.chaos.files.clients import FileClient
from tests.chaos.files.records import Operations
from tests.chaos.installation import Installation
from tests.chaos.workload import Person, Workload
from tests.support.data.inventory import query

CLIENTS = 6
_OPERATIONS = """
SELECT o.operation_id, o.version_id FROM file_operations o JOIN files f ON f.id = o.file_id WHERE f.owner_id = %s
"""


class Files(Workload):
    """Uploads, replaces, deletes, renewals, grants and reads."""

    workers = {"files": 1, "background": 2, "ledger": 1}  # noqa: RUF012
    waiting = (FILES,)

    def __init__(self, installation: Installation, closing: ExitStack) -> None:
        del closing
        self._installation = installation
        self._operations = Operations()

    def begin(self) -> Sequence[Person]:
        at = self._installation
        agent, owner = at.agent(), at.owner()
        return [
            FileClient(
                at.chance(f"files/{number}"),
                agent,
                owner,
                self._operations,
                at.retrying_client,
                at.observations,
            )
            for number in range(CLIENTS)
        ]

    def compare(self) -> Iterator[str]:
        at = self._installation
        recorded = query(at.stack, _OPERATIONS, (at.credentials["deployment"]["daemonIdentityId"],))
        yield from self._operations.compare({UUID(operation): version for operation, version in recorded})
