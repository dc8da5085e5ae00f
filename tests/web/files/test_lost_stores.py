"""A store that is lost, full or read-only: reads continue, writes report the reason and work again afterwards."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from deploy.embedded.valkey import EmbeddedValkey
from tests.support.files.file_requests import leaving_nothing, refuse, succeed
from tests.support.servers.small_disks import CannotMount, SmallDisk, mounted_disk
from tests.support.web.web_process import Front, open_front
from tests.web.files.conftest import Cast, make_cast

MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    try:
        with mounted_disk(tmp_path_factory.mktemp("small")) as disk:
            yield disk
    except CannotMount as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def front(database_url: str, valkey_server: EmbeddedValkey, disk: SmallDisk) -> Iterator[Front]:
    """A web process with its store on the small disk."""
    with open_front(
        database_url, valkey_server.url, disk.path / "blobs", blob_store_reserve_bytes=MEBIBYTE
    ) as front:
        yield front


@pytest.fixture(scope="module")
def cast(front: Front) -> Cast:
    return make_cast(front)


@pytest.fixture(autouse=True)
def _repaired(disk: SmallDisk) -> Iterator[None]:
    yield
    disk.repair()


def readiness(front: Front) -> tuple[int, str]:
    """Read the readiness past its cache of one second."""
    front.app.extensions["health_checks"]._ready = (0.0, {})
    answer = front.get("/readyz")
    return answer.status_code, (answer.json or {})["checks"]["blobs"]


def test_a_full_disk_refuses_writes_and_serves_reads(cast: Cast, front: Front, disk: SmallDisk) -> None:
    file = succeed(cast.agent.upload(b"stored before"), 201)
    link = succeed(cast.agent.grant(file), 201)["url"]
    assert readiness(front) == (200, "ok")
    disk.fill(leaving_bytes=MEBIBYTE // 2)  # less than the reserve
    with leaving_nothing(front):
        for answer in (cast.agent.upload(), cast.agent.replace(file)):
            refuse(answer, 507, "storage_full")
            assert int(answer.headers["Retry-After"]) > 0
    assert readiness(front) == (503, "storage_full")
    assert cast.agent.content(file).data == cast.anonymous.follow(link).data == b"stored before"
    assert succeed(cast.agent.metadata(file))["availability"] == "Available"
    disk.free()
    operation = uuid4()
    succeed(cast.agent.upload(operationId=operation), 201)
    assert readiness(front) == (200, "ok")


def test_a_disk_without_a_free_byte_refuses_writes(cast: Cast, front: Front, disk: SmallDisk) -> None:
    file = succeed(cast.agent.upload(b"stored before"), 201)
    disk.fill()
    with leaving_nothing(front):
        refuse(cast.agent.upload(), 507, "storage_full")
    assert readiness(front) == (503, "storage_full")
    assert cast.agent.content(file).data == b"stored before"
    disk.free()
    succeed(cast.agent.upload(), 201)


def test_a_read_only_mount_refuses_writes_and_serves_reads(cast: Cast, front: Front, disk: SmallDisk) -> None:
    file = succeed(cast.agent.upload(b"stored before"), 201)
    disk.make_read_only()
    with leaving_nothing(front):
        for answer in (cast.agent.upload(), cast.agent.replace(file)):
            refuse(answer, 507, "storage_read_only")
            assert int(answer.headers["Retry-After"]) > 0
    assert readiness(front) == (503, "storage_read_only")
    assert cast.agent.content(file).data == b"stored before"
    disk.make_writable()
    succeed(cast.agent.upload(), 201)
    assert readiness(front) == (200, "ok")


def test_a_lost_mount_refuses_writes_and_loses_nothing(cast: Cast, front: Front, disk: SmallDisk) -> None:
    file = succeed(cast.agent.upload(b"stored before"), 201)
    link = succeed(cast.agent.grant(file), 201)["url"]
    disk.lose()
    for answer in (
        cast.agent.upload(),
        cast.agent.replace(file),
        cast.agent.content(file),
        cast.anonymous.follow(link),
    ):
        refuse(answer, 503, "blob_store_unavailable")
    assert readiness(front) == (503, "unavailable")
    assert succeed(cast.agent.metadata(file))["availability"] == "Available"
    assert list(Path(disk.path).iterdir()) == []
    disk.find()
    assert cast.anonymous.follow(link).data == b"stored before"
    succeed(cast.agent.replace(file, b"newer"))
    assert readiness(front) == (200, "ok")
