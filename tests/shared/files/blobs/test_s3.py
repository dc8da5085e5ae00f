"""The S3 store: lost responses, refused conditions, interrupted connections."""

import socket
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Literal
from uuid import uuid4

import pytest
from botocore.awsrequest import AWSRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import EndpointConnectionError

from shared.db.database import Database
from shared.files.blobs import S3Access, open_blob_store
from shared.files.blobs.base import UNKNOWN_UPLOAD, Blob, BlobDamaged, BlobMissing, BlobStoreUnavailable
from shared.files.blobs.marker import MARKER
from shared.files.blobs.s3 import S3Bucket
from shared.files.blobs.s3_store import S3BlobStore, part_size
from shared.files.store_identity import RecordedIdentity
from shared.ids import new_id
from tests.contracts.blob_stores import S3Bench, content_of, is_intact, put, read, stage

MIB = 1 << 20


@pytest.fixture
def bench(ministack: S3Access) -> S3Bench:
    return S3Bench(f"s3://blobs-{uuid4()}/content", ministack)


@pytest.mark.parametrize(
    ("size_bytes", "part_bytes"),
    [(0, 8 * MIB), (5 << 30, 8 * MIB), (10_000 * 8 * MIB, 8 * MIB), (10_000 * 8 * MIB + 1, 8 * MIB + 1)],
)
def test_parts_are_small_and_at_most_ten_thousand(size_bytes: int, part_bytes: int) -> None:
    assert part_size(size_bytes) == part_bytes
    assert -(-size_bytes // part_size(size_bytes)) <= 10_000


def test_key_is_below_the_prefix_and_begins_with_random_digits(bench: S3Bench) -> None:
    blob = put(bench.store)

    name = str(blob.version_id)
    assert bench.leftovers() == {f"content/{name[-2:]}/{name}"}


def test_completion_with_a_lost_response_is_found_done(bench: S3Bench) -> None:
    blob = stage(bench.store)
    parts = bench.bucket.find_parts(blob.version_id, blob.upload_id or "")
    bench.bucket.complete_upload(blob.version_id, blob.upload_id or "", parts or [])

    assert bench.store.place([blob]) == {}
    assert is_intact(bench.store, blob)


def test_placement_of_an_existing_object_succeeds_and_aborts_the_second_upload(bench: S3Bench) -> None:
    blob = put(bench.store)
    again = replace(blob, upload_id=_send(bench.bucket, blob))

    assert bench.store.place([again]) == {}
    assert bench.leftovers() == {bench.bucket.key(blob.version_id)}
    assert is_intact(bench.store, blob)


def test_a_server_without_conditions_is_asked_without(bench: S3Bench) -> None:
    refused = []

    def refuse(request: AWSRequest, **_: Any) -> Any:
        if "If-None-Match" not in request.headers:
            return None
        refused.append(request)
        body = b"<Error><Code>NotImplemented</Code><Message>A header is not implemented</Message></Error>"
        return _answer(request, 501, body)

    bench.client.meta.events.register("before-send.s3.CompleteMultipartUpload", refuse)
    blob = put(bench.store)

    assert len(refused) == 1
    assert is_intact(bench.store, blob)


def test_parts_that_do_not_add_up_are_never_completed(bench: S3Bench) -> None:
    blob = replace(stage(bench.store), size_bytes=1001)

    failures = bench.store.place([blob])

    assert type(failures[blob.version_id]) is BlobDamaged
    with pytest.raises(BlobMissing):
        read(bench.store, blob)


def test_object_with_another_checksum_is_damaged_if_the_server_keeps_one(
    moto: S3Access,
) -> None:
    bench = S3Bench(f"s3://blobs-{uuid4()}", moto)
    blob = put(bench.store)
    assert bench.bucket.head(blob.version_id).checksum == blob.checksum

    failures = bench.store.place([replace(blob, checksum="AAAAAA==")])

    assert type(failures[blob.version_id]) is BlobDamaged


def test_every_part_is_sent_with_a_checksum_for_the_server_to_check(bench: S3Bench) -> None:
    sent: list[str] = []
    bench.client.meta.events.register(
        "before-send.s3.UploadPart",
        lambda request, **_: sent.append(request.headers["x-amz-checksum-crc32"]),
    )

    blob = put(bench.store, 9 * MIB)

    assert len(sent) == 2
    assert is_intact(bench.store, blob)


def test_a_server_that_refuses_checksums_gets_none(ministack: S3Access) -> None:
    bench = S3Bench(f"s3://blobs-{uuid4()}", ministack)
    bucket = S3Bucket(
        bench.bucket_name,
        endpoint_url=ministack.endpoint_url,
        region=ministack.region,
        access_key_id=ministack.access_key_id,
        secret_access_key=ministack.secret_access_key,
        checksums=False,
    )
    headers: set[str] = set()
    bucket.client.meta.events.register(
        "before-send.s3", lambda request, **_: headers.update(name.lower() for name in request.headers)
    )
    store = S3BlobStore(bucket)

    blobs = [put(store, size_bytes) for size_bytes in (0, 1000, 9 * MIB)]

    assert {blob.checksum for blob in blobs} == {None}
    assert all(is_intact(store, blob) for blob in blobs)
    assert store.remove(blobs) == {}
    assert bench.leftovers() == set()
    assert not {name for name in headers if "checksum" in name or "trailer" in name}


def test_removal_fails_while_an_aborted_upload_has_parts(bench: S3Bench) -> None:
    stubborn, other = stage(bench.store), stage(bench.store)

    def ignore(request: AWSRequest, **_: Any) -> Any:
        return _answer(request, 204, b"") if str(stubborn.version_id) in str(request.url) else None

    bench.client.meta.events.register("before-send.s3.AbortMultipartUpload", ignore)
    failures = bench.store.remove([stubborn, other])
    bench.client.meta.events.unregister("before-send.s3.AbortMultipartUpload", ignore)

    assert {version_id: type(error) for version_id, error in failures.items()} == {
        stubborn.version_id: BlobStoreUnavailable
    }
    assert bench.store.remove([stubborn]) == {}
    assert bench.leftovers() == set()


def test_interrupted_read_resumes_at_its_offset(bench: S3Bench) -> None:
    blob = put(bench.store, 32 * MIB)  # more than the sockets between us hold
    asked: list[str] = []
    bench.client.meta.events.register(
        "before-send.s3.GetObject", lambda request, **_: asked.append(request.headers["Range"])
    )
    with bench.store.open(blob.version_id, placed=True) as reader:
        chunks = reader.chunks(0, blob.size_bytes)
        first = next(chunks)
        _break_connection(reader)
        found = first + b"".join(chunks)

    assert found == content_of(blob.version_id, blob.size_bytes)
    assert len(asked) == 2


def test_a_server_that_ignores_ranges_is_not_believed(bench: S3Bench) -> None:
    blob = put(bench.store)

    def strip(request: AWSRequest, **_: Any) -> None:
        del request.headers["Range"]

    bench.client.meta.events.register("before-sign.s3.GetObject", strip)
    with bench.store.open(blob.version_id, placed=True) as reader, pytest.raises(BlobDamaged):
        reader.chunks(10, 20)


def test_a_server_that_does_not_answer_is_unavailable() -> None:
    store = open_blob_store(
        "s3://bucket",
        s3=S3Access(endpoint_url="http://127.0.0.1:9", region="x", access_key_id="a", secret_access_key="b"),
    )
    blob = Blob(version_id=new_id(), size_bytes=1, upload_id="u")

    with pytest.raises(BlobStoreUnavailable) as failed:
        store.check()
    assert isinstance(failed.value.__cause__, EndpointConnectionError)
    assert type(store.place([blob])[blob.version_id]) is BlobStoreUnavailable


def test_a_bucket_that_is_not_there_fails_the_check(moto: S3Access) -> None:
    with pytest.raises(BlobStoreUnavailable):
        open_blob_store("s3://no-such-bucket", s3=moto).check()


def test_secrets_do_not_show_in_a_representation() -> None:
    assert "hidden" not in repr(S3Access(secret_access_key="hidden"))


def _send(bucket: S3Bucket, blob: Blob) -> str:
    upload_id = bucket.create_upload(blob.version_id)
    bucket.send_part(blob.version_id, upload_id, 1, bytearray(blob.size_bytes))
    return upload_id


def _answer(request: AWSRequest, status: int, body: bytes) -> AWSResponse:
    class Raw:
        def stream(self, **_: Any) -> Iterator[bytes]:
            yield body

    return AWSResponse(str(request.url), status, HTTPHeaders(), Raw())


def _break_connection(reader: Any) -> None:
    reader._body._raw_stream._connection.sock.shutdown(socket.SHUT_RDWR)


def test_upload_without_a_recorded_id_is_found_by_its_key(bench: S3Bench) -> None:
    lost, other = new_id(), new_id()
    for version_id in (lost, lost, other):
        bench.bucket.create_upload(version_id)

    assert bench.store.remove([Blob(version_id=lost, size_bytes=0, upload_id=UNKNOWN_UPLOAD)]) == {}

    assert bench.leftovers() == {bench.bucket.key(other)}


def test_a_bucket_that_keeps_versions_is_refused(moto: S3Access) -> None:
    bench = S3Bench(f"s3://versioned-{uuid4()}/content", moto)
    states: tuple[tuple[Literal["Enabled", "Suspended"], bool], ...] = (
        ("Enabled", True),
        ("Suspended", False),
    )
    for status, is_refused in states:
        bench.client.put_bucket_versioning(
            Bucket=bench.bucket_name, VersioningConfiguration={"Status": status}
        )
        with pytest.raises(ValueError, match="keeps versions") if is_refused else nullcontext():
            open_blob_store(bench.url, s3=moto)


def test_bucket_is_used_only_while_its_marker_matches(database: Database, moto: S3Access) -> None:
    bench, other = (S3Bench(f"s3://marked-{uuid4()}/content", moto) for _ in range(2))
    identity = RecordedIdentity(database)
    blob = put(open_blob_store(bench.url, s3=moto, identity=identity))
    assert bench.leftovers() == {bench.bucket.key(blob.version_id), f"content/{MARKER}"}

    elsewhere = open_blob_store(other.url, s3=moto, identity=identity)
    for act in (
        partial(elsewhere.begin, new_id()),
        partial(elsewhere.place, [blob]),
        partial(elsewhere.remove, [blob]),
        partial(elsewhere.open, blob.version_id, placed=True),
        elsewhere.check,
    ):
        with pytest.raises(BlobStoreUnavailable):
            act()
    assert other.leftovers() == set()
    assert is_intact(open_blob_store(bench.url, s3=moto, identity=identity), blob)
