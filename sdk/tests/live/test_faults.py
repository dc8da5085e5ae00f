"""The SDK against a running service behind a faulty network: nothing is lost, duplicated or damaged."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from tests.support.processes.stack import wait_until

from quartermaster import errors
from sdk.tests.faulty_proxy import Cut, FaultyProxy, Refusal
from sdk.tests.forms import Connect
from sdk.tests.live.conftest import Installation

pytestmark = pytest.mark.usefixtures("short_pauses")
SMALL = os.urandom(1 << 20)
LARGE = os.urandom(20 << 20)


@pytest.fixture
def proxy(installation: Installation) -> Iterator[FaultyProxy]:
    with FaultyProxy(installation.front.port or 0).running() as running:
        yield running


@pytest.fixture
def client(installation: Installation, proxy: FaultyProxy, connect: Connect) -> Any:
    """Yield the deployment's client behind the proxy, which has a token already."""
    made = connect(**{**installation.deployment, "base_url": proxy.url})
    list(made.files.list(availability="Pending"))
    return made


def drop_connections(client: Any, proxy: FaultyProxy, *plan: Cut | Refusal) -> None:
    """Make the next connections fail as planned, and close open ones first."""
    sender = client.files._sender
    getattr(sender, "_target", sender).http._transport._pool._max_keepalive_connections = 0
    with pytest.raises(errors.NotFound):
        client.files.get(uuid4())
    proxy.plan[:] = plan


def names(client: Any, prefix: str) -> list[str]:
    return [at.metadata.file_name for at in client.files.list() if at.metadata.file_name.startswith(prefix)]


@pytest.mark.parametrize(
    "faults",
    [
        [Refusal(), Refusal()],
        [Cut(after_sent=500_000)],
        [Cut(after_sent=100), Cut(after_sent=900_000), Refusal()],
        [Cut(after_received=1)],
    ],
    ids=["503", "cut while sending", "several", "lost answer"],
)
def test_an_upload_through_faults_is_stored_exactly_once(
    client: Any, proxy: FaultyProxy, faults: list[Cut | Refusal]
) -> None:
    name = uuid4().hex
    drop_connections(client, proxy, *faults)
    stored = client.files.upload(SMALL, file_name=name)
    assert proxy.plan == []
    assert stored.metadata.content_sha256 == hashlib.sha256(SMALL).hexdigest()
    assert names(client, name) == [name]


def test_a_large_upload_goes_on_where_it_was_cut(client: Any, proxy: FaultyProxy, tmp_path: Path) -> None:
    name, seen = uuid4().hex, []
    drop_connections(
        client,
        proxy,
        Cut(),  # the beginning
        Cut(after_sent=700_000),
        Cut(),  # the request for the offset
        Cut(after_sent=3_000_000),
        Refusal(),  # of the request for the offset
        Cut(),
        Cut(after_received=1),
    )
    path = tmp_path / name
    path.write_bytes(LARGE)
    stored = client.files.upload(path, progress=lambda sent, _: seen.append(sent))
    assert stored.metadata.content_sha256 == hashlib.sha256(LARGE).hexdigest()
    assert names(client, name) == [name]
    assert proxy.plan == []
    sent = sum(max(0, after - before) for before, after in zip([0, *seen], seen, strict=False))
    assert sent < 2 * len(LARGE), "what had come was sent again"


def test_a_large_upload_whose_last_answer_is_lost_is_stored_once(
    client: Any, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quartermaster._async import uploads as of_tasks
    from quartermaster._sync import uploads as of_threads

    for module in (of_tasks, of_threads):
        monkeypatch.setattr(module, "FIRST_STEP_BYTES", 32 << 20)
    name = uuid4().hex
    drop_connections(client, proxy, Cut(), Cut(after_received=1))
    stored = client.files.upload(LARGE, file_name=name)
    assert stored.metadata.byte_size == len(LARGE)
    assert names(client, name) == [name]


def test_a_large_replace_is_resumable_too(client: Any, proxy: FaultyProxy) -> None:
    first = client.files.upload(b"x", file_name="a")
    drop_connections(client, proxy, Cut(), Cut(after_sent=700_000))
    second = client.files.replace(
        first.id, LARGE, file_name="a", expected_version_id=first.version_id, expected_revision=1
    )
    assert (second.revision, second.metadata.byte_size) == (2, len(LARGE))


def test_a_download_through_cuts_is_whole(client: Any, proxy: FaultyProxy, tmp_path: Path) -> None:
    stored = client.files.upload(LARGE, file_name="a")
    drop_connections(client, proxy, Cut(after_received=5_000_000), Refusal(), Cut(after_received=9_000_000))
    client.files.download(stored.id, tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == LARGE
    assert proxy.plan == []


def test_a_reference_whose_removal_lost_its_answer_is_removed(client: Any, proxy: FaultyProxy) -> None:
    stored = client.files.upload(b"x", file_name="a", association=("Task", "1"))
    drop_connections(client, proxy, Cut(after_received=1))
    client.files.remove_reference(stored.id, ("Task", "1"))
    assert proxy.plan == []
    assert client.files.references(stored.id) == ()


def test_a_revoked_token_is_replaced_and_nobody_notices(installation: Installation, connect: Connect) -> None:
    client = connect(**installation.deployment)
    stored = client.files.upload(b"x", file_name="a")
    tokens = client.files._auth._tokens
    token = getattr(tokens, "_target", tokens)._token.value
    secret = installation.deployment
    revoked = httpx.post(
        f"{secret['base_url']}/oauth/revoke",
        data={"token": token, "client_id": secret["client_id"], "client_secret": secret["client_secret"]},
    )
    assert revoked.status_code == 200
    url = f"{secret['base_url']}/files/{stored.id}"
    headers = {"Authorization": f"Bearer {token}"}
    wait_until(lambda: httpx.get(url, headers=headers).status_code == 401, "the token is refused")
    assert client.files.upload(SMALL, file_name="b").metadata.byte_size == len(SMALL)


@pytest.mark.parametrize("hours", [-48, 48])
def test_a_wrong_clock_of_this_machine_does_not_matter(
    installation: Installation, connect: Connect, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + hours * 3600)
    client = connect(**installation.deployment)
    stored = client.files.upload(b"x", file_name="a")
    assert client.files.create_read_link(stored.id, stored.version_id).link_id
    assert client.files.get(stored.id).id == stored.id
