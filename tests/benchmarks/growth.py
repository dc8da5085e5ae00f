"""Rows about growth: the cost of reading metadata and creating grants with few and with many stored files."""

from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

from tests.benchmarks.clients import Connection
from tests.benchmarks.inventory import some_files, store_unexpired
from tests.benchmarks.runner.measurements import Contender, interleave
from tests.benchmarks.runner.product import Bench, Front, warm_up
from tests.benchmarks.runner.report import Line, cpu_per, flat, milliseconds

Request = Callable[[Front, UUID, UUID], bytes]


def growth(bench: Bench) -> Iterator[Line]:
    """Send the same requests to two web processes whose databases differ only in size."""
    few, many, count = 100, bench.scaled(1_000_000, 100_000), bench.scaled(500, 150)
    small, large = _front(bench, "few", few), _front(bench, "many", many)
    for what, request, status in (("metadata read", _read, 200), ("grant creation", _grant, 201)):
        contenders: dict[str, Contender] = {
            "few": _asking(bench, small, request, count, status),
            "many": _asking(bench, large, request, count, status),
        }
        for contender in contenders.values():
            contender()
        taken = interleave(bench.scaled(7, 3), contenders)
        yield flat(
            f"{what} among {many} files and grants",
            f"{milliseconds(taken['many'].seconds / count)}",
            f"among {few}: {milliseconds(taken['few'].seconds / count)},"
            f" {taken['few'].cpu_seconds * 1000 / count:.2f} ms CPU",
            ratio=taken["many"].seconds / taken["few"].seconds,
            cpu=cpu_per(taken["many"], count, "request"),
        )


def _front(bench: Bench, name: str, files: int) -> Front:
    front = bench.lone_front(name)
    warm_up(front, uploads=1)  # A web process only accepts a store whose identity its database knows.
    store_unexpired(
        front.stack.administrator_url, files, owner_id=front.daemon_id, organization_id=front.organization_id
    )
    warm_up(front, uploads=1)
    return front


def _asking(bench: Bench, front: Front, request: Request, count: int, status: int) -> Contender:
    def ask(files: Sequence[tuple[UUID, UUID]]) -> None:
        connection = Connection(front.port)
        for file_id, version_id in files:
            connection.ask(request(front, file_id, version_id), expect=status)
        connection.close()

    files = some_files(front.stack.administrator_url, count, owner_id=front.daemon_id)
    return lambda: bench.meter(front).run(lambda: ask(files))


def _read(front: Front, file_id: UUID, _: UUID) -> bytes:
    return front.head("GET", f"/files/{file_id}")


def _grant(front: Front, file_id: UUID, version_id: UUID) -> bytes:
    return front.head("POST", f"/files/{file_id}/versions/{version_id}/grants")
