"""Rows about expiry: the rate of removing expired content, with few and with many unexpired files."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from shared.db.database import Database
from shared.files.blobs.local import LocalBlobStore
from shared.files.lifecycle.expiry import expire_due
from shared.ids import new_id
from tests.benchmarks.inventory import store_expired, store_unexpired
from tests.benchmarks.peers.bare_operations import BareSweep
from tests.benchmarks.runner.measurements import Contender, CpuMeter, Sample, interleave
from tests.benchmarks.runner.product import Bench
from tests.benchmarks.runner.report import Line, at_least, cpu_per, flat

FILE_BYTES = 4096


def sweeping(bench: Bench) -> Iterator[Line]:
    """Expire files of 4 KiB, beside few and beside many others."""
    count = bench.scaled(10_000, 2000)
    few, many = 10_000, bench.scaled(5_000_000, 100_000)
    bare = BareSweep(bench.migrated_database("bare"), bench.directory / "bare-objects")

    def unlink() -> Sample:
        bare.fill(count=count, byte_size=FILE_BYTES)
        os.sync()
        return _meter(bench).run(bare.run)

    contenders: dict[str, Contender] = {
        "few": _sweep(bench, "sweep_few", unexpired=few, count=count),
        "bare": unlink,
        "many": _sweep(bench, "sweep_many", unexpired=many, count=count),
    }
    taken = interleave(bench.scaled(5, 2), contenders)
    bare.close()
    yield at_least(
        f"sweep of {count} expired files",
        f"{count / taken['few'].seconds:.0f} files/s",
        f"bare {count / taken['bare'].seconds:.0f} files/s, {taken['bare'].cpu_seconds * 1000 / count:.3f} ms/file",
        ratio=taken["bare"].seconds / taken["few"].seconds,
        minimum=0.5,
        cpu=cpu_per(taken["few"], count, "file"),
    )
    yield flat(
        f"the same among {many} unexpired",
        f"{count / taken['many'].seconds:.0f} files/s",
        f"among {few}: {count / taken['few'].seconds:.0f} files/s",
        ratio=taken["many"].seconds / taken["few"].seconds,
        cpu=cpu_per(taken["many"], count, "file"),
    )


def _sweep(bench: Bench, name: str, *, unexpired: int, count: int) -> Contender:
    url = bench.migrated_database(name)
    store_unexpired(url, unexpired, owner_id=str(new_id()), organization_id=str(new_id()), with_grants=False)
    root = Path(bench.directory / f"{name}-blobs")
    store = LocalBlobStore(root)
    database = Database(url.replace("postgresql://", "postgresql+psycopg2://", 1))

    def sweep() -> Sample:
        store_expired(url, root / "objects", count, byte_size=FILE_BYTES)
        os.sync()
        sample = _meter(bench).run(_expiring(database, store, count))
        database.dispose()
        return sample

    return sweep


def _expiring(database: Database, store: LocalBlobStore, count: int) -> Callable[[], None]:
    def expire() -> None:
        assert expire_due(database, store) == count

    return expire


def _meter(bench: Bench) -> CpuMeter:
    return CpuMeter({"postgres": [bench.postgres_pid]}, own="sweeper")
