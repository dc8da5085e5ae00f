"""Checksums of chunks: the same for any division into pieces, and no damaged byte passes."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from shared.files.blobs.base import BlobDamaged
from shared.files.blobs.chunks import CHECKED_CHUNK_BYTES, ChunkChecksums, checked_chunks

EDGE = CHECKED_CHUNK_BYTES
CONTENT = random.Random(0).randbytes(2 * EDGE + 1000)


class Held:
    """Bytes as a blob."""

    file = None
    fixed_path = None

    def __init__(self, content: bytes) -> None:
        self._content = content

    def chunks(self, start: int, stop: int) -> Iterator[bytes]:
        for at in range(start, stop, 100_000):
            yield self._content[at : min(at + 100_000, stop)]

    def close(self) -> None:
        pass

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *exception: object) -> None:
        pass


def checksums_of(content: bytes, piece_bytes: int = 1 << 20) -> bytes:
    checksums = ChunkChecksums()
    for at in range(0, len(content), piece_bytes):
        checksums.update(memoryview(content)[at : at + piece_bytes])
    return checksums.finish()


def read(content: bytes, start: int, stop: int, checksums: bytes) -> bytes:
    return b"".join(checked_chunks(Held(content), start, stop, size_bytes=len(CONTENT), checksums=checksums))


@pytest.mark.parametrize("piece_bytes", [1000, EDGE - 1, EDGE, EDGE + 1, 10 * EDGE])
def test_checksums_do_not_depend_on_the_pieces(piece_bytes: int) -> None:
    assert checksums_of(CONTENT, piece_bytes) == checksums_of(CONTENT)
    assert len(checksums_of(CONTENT)) == 3 * 4


@pytest.mark.parametrize("size_bytes", [0, 1, EDGE, EDGE + 1])
def test_there_is_one_checksum_a_chunk(size_bytes: int) -> None:
    assert len(checksums_of(bytes(size_bytes))) == 4 * -(-size_bytes // EDGE)


@pytest.mark.parametrize("at", [0, EDGE - 1, EDGE, 2 * EDGE, len(CONTENT) - 1])
def test_a_range_that_touches_a_rotten_chunk_is_refused_and_no_other(at: int) -> None:
    checksums = checksums_of(CONTENT)
    rotten = CONTENT[:at] + bytes([CONTENT[at] ^ 0x10]) + CONTENT[at + 1 :]
    for number in range(3):
        start, stop = number * EDGE + 1, min((number + 1) * EDGE, len(CONTENT)) - 1
        if number == at // EDGE:
            with pytest.raises(BlobDamaged):
                read(rotten, start, stop, checksums)
        else:
            assert read(rotten, start, stop, checksums) == CONTENT[start:stop]


def test_checksums_of_another_length_are_damage() -> None:
    with pytest.raises(BlobDamaged):
        read(CONTENT, 0, 10, checksums_of(CONTENT)[:-4])
