"""The same guarantees with an S3 server: content is placed before 201, and no death leaves an unfinished upload."""

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import boto3
import pytest
import requests

from shared.files.blobs.marker import MARKER
from tests.contracts.s3_servers import running_ministack
from tests.journeys.raw_uploads import raw_upload
from tests.support.agents.rest_clients import Client, exchange_token
from tests.support.data.inventory import find_disagreeing_rows, query, settle
from tests.support.processes.crashing_web_process import DoomedFront
from tests.support.processes.stack import Servers, Stack, free_port, wait_until

BUCKET = "quartermaster"
MEBIBYTE = 1 << 20
CONTENT = os.urandom(9 * MEBIBYTE)  # Two parts.
UNFINISHED = ("upload.begun", "upload.opened", "upload.received", "upload.sealed", "upload.before_commit")


@dataclass(frozen=True, kw_only=True)
class OnS3:
    """An installation over a bucket."""

    stack: Stack
    bucket: Any
    agent: Client
    owner: Client
    doomed: DoomedFront

    def objects(self) -> set[str]:
        found = self.bucket.list_objects_v2(Bucket=BUCKET).get("Contents", [])
        return {item["Key"].rpartition("/")[2] for item in found} - {MARKER}

    def uploads(self) -> set[str]:
        found = self.bucket.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
        return {item["UploadId"] for item in found}

    def assert_nothing_left_over(self) -> None:
        """Finish background work, then compare rows and objects."""
        before = self.uploads()
        settle(self.stack)
        assert find_disagreeing_rows(self.stack) == []
        live = {row[0] for row in query(self.stack, "SELECT version_id FROM blobs WHERE state = 'live'")}
        assert self.objects() == live
        assert self.uploads() == set(), before


@pytest.fixture(scope="module")
def on_s3(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnS3]:
    """Run an installation over an S3 server of its own."""
    directory = tmp_path_factory.mktemp("s3")
    with running_ministack(directory) as access:
        bucket = boto3.client(
            "s3",
            endpoint_url=access.endpoint_url,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        bucket.create_bucket(Bucket=BUCKET)
        settings = {
            "S3_ENDPOINT_URL": access.endpoint_url or "",
            "S3_REGION": "us-east-1",
            "S3_ACCESS_KEY_ID": "test",
            "S3_SECRET_ACCESS_KEY": "test",
        }
        stack = Stack(
            directory,
            servers,
            blob_store=f"s3://{BUCKET}/files",
            settings=settings,
        )
        credentials = stack.set_up()
        front = stack.web()
        workers = stack.worker("files"), stack.worker("background")
        with stack.running(front, *workers), DoomedFront(stack).running() as doomed:
            yield OnS3(
                stack=stack,
                bucket=bucket,
                agent=Client(front.url, exchange_token(front.url, credentials)),
                owner=Client(front.url, credentials["ownerApiKey"]),
                doomed=doomed,
            )
        bucket.close()


def test_upload_receives_201_when_placed_and_202_without_waiting(on_s3: OnS3) -> None:
    placed = on_s3.agent.upload(CONTENT, operation=uuid4())
    assert placed.status_code == 201, placed.text
    assert placed.json()["versionId"] in on_s3.objects()
    assert on_s3.agent.download(placed.json()["id"]).content == CONTENT

    pending = on_s3.agent.upload(CONTENT, operation=uuid4(), prefer="respond-async")
    assert (pending.status_code, pending.json()["availability"]) == (202, "Pending")
    file_id = pending.json()["id"]
    wait_until(lambda: on_s3.agent.read(file_id).json()["availability"] == "Available", "it is placed")
    assert on_s3.agent.download(file_id).content == CONTENT
    for file in (placed.json(), pending.json()):
        assert on_s3.owner.delete(file["id"], operation=uuid4()).status_code == 200
    on_s3.assert_nothing_left_over()


@pytest.mark.parametrize("point", UNFINISHED)
def test_upload_whose_web_process_dies_before_its_commit_is_aborted(on_s3: OnS3, point: str) -> None:
    operation = uuid4()
    front = on_s3.doomed.armed(point)
    with pytest.raises(requests.ConnectionError):
        on_s3.agent.upload(CONTENT, operation=operation, via=front.url)
    retried = on_s3.agent.upload(CONTENT, operation=operation)
    assert (retried.status_code, retried.json()["replayed"]) == (201, False)
    on_s3.assert_nothing_left_over()
    assert on_s3.agent.download(retried.json()["id"]).content == CONTENT


def test_upload_whose_web_process_dies_during_the_body_is_aborted(on_s3: OnS3) -> None:
    front = on_s3.stack.web(port=free_port())
    with on_s3.stack.running(front):
        head, body = raw_upload(on_s3.agent, CONTENT)
        with socket.create_connection(("127.0.0.1", front.port or 0)) as connection:
            connection.sendall(head + body[: len(body) - 1000])
            wait_until(on_s3.uploads, "the front has begun to send")
            front.kill()
    on_s3.assert_nothing_left_over()


def test_acknowledged_upload_is_placed_although_its_web_process_and_worker_died(on_s3: OnS3) -> None:
    operation = uuid4()
    front = on_s3.doomed.armed("jobs.before_publish")
    with pytest.raises(requests.ConnectionError):
        on_s3.agent.upload(CONTENT, operation=operation, via=front.url)
    settle(on_s3.stack)
    retried = on_s3.agent.upload(CONTENT, operation=operation)
    assert (retried.status_code, retried.json()["replayed"]) == (200, True)
    assert on_s3.agent.download(retried.json()["id"]).content == CONTENT
    on_s3.assert_nothing_left_over()


@pytest.mark.parametrize("point", ["placement.claimed", "placement.placed", "placement.recorded"])
def test_version_is_placed_once_although_its_worker_died(on_s3: OnS3, point: str) -> None:
    broker = {"REDIS_URL": on_s3.stack.servers.new_redis_url()}  # No other worker receives the job.
    front = on_s3.stack.web(port=free_port(), **broker)
    worker = on_s3.stack.worker("files", FAULTS=point, **broker)
    with on_s3.stack.running(front, worker):
        pending = on_s3.agent.upload(CONTENT, operation=uuid4(), prefer="respond-async", via=front.url)
        assert pending.status_code == 202
        assert worker.wait_for_end() < 0
    on_s3.assert_nothing_left_over()
    assert on_s3.agent.download(pending.json()["id"]).content == CONTENT


@pytest.mark.parametrize(
    "point", ["upload.begun", "upload.received", "upload.before_commit", "upload.committed"]
)
def test_resumable_upload_keeps_pieces_of_any_size_whatever_process_dies(on_s3: OnS3, point: str) -> None:
    agent, operation = on_s3.agent, uuid4()
    begun = agent.begin(len(CONTENT), operation=operation)
    path = urlsplit(begun.headers["Location"]).path
    assert agent.append(path, 0, CONTENT[:1000]).status_code == 204
    with pytest.raises(requests.ConnectionError):
        agent.append(path, 1000, CONTENT[1000:], via=on_s3.doomed.armed(point).url, is_last=True)
    offset = agent.offset(path)
    assert offset >= 1000
    stored = agent.append(path, offset, CONTENT[offset:], is_last=True)
    assert (stored.status_code, stored.json()["replayed"]) == (201, False), stored.text
    assert agent.download(stored.json()["id"]).content == CONTENT
    on_s3.assert_nothing_left_over()
