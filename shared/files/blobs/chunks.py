"""Checksums of content chunk by chunk, so that decayed bytes are detected before they are sent.

The digest of the whole content is known only after the last byte. A CRC-32 for each 256 KiB, computed on arrival, costs
a fifth of a SHA-256 and 16 bytes for each MiB. It protects against decay, not against tampering.
"""

import zlib
from collections.abc import Iterator

from shared.files.blobs.base import BlobDamaged, BlobReader

CHECKED_CHUNK_BYTES = 256 << 10
_CHECKSUM_BYTES = 4


class ChunkChecksums:
    """Computes the checksums of chunks while content is received."""

    def __init__(self) -> None:
        self._finished = bytearray()
        self._running = 0
        self._filled = 0

    def update(self, piece: memoryview | bytes) -> None:
        """Add a piece of any length."""
        view = memoryview(piece)
        while view:
            part = view[: CHECKED_CHUNK_BYTES - self._filled]
            self._running = zlib.crc32(part, self._running)
            self._filled += len(part)
            view = view[len(part) :]
            if self._filled == CHECKED_CHUNK_BYTES:
                self._finish_chunk()

    def finish(self) -> bytes:
        """Return the checksums of all chunks, one after the other."""
        if self._filled:
            self._finish_chunk()
        return bytes(self._finished)

    def _finish_chunk(self) -> None:
        self._finished += self._running.to_bytes(_CHECKSUM_BYTES)
        self._running = self._filled = 0


def checked_chunks(
    blob: BlobReader, start: int, stop: int, *, size_bytes: int, checksums: bytes
) -> Iterator[bytes]:
    """Yield the bytes start..stop (exclusive), each only after its whole chunk was checked.

    Raises BlobDamaged from the iterator, and what the blob raises.
    """
    # Refuse a wrong number of checksums: they cannot belong to this content.
    if len(checksums) != -(-size_bytes // CHECKED_CHUNK_BYTES) * _CHECKSUM_BYTES:
        raise BlobDamaged
    for number in range(start // CHECKED_CHUNK_BYTES, -(-stop // CHECKED_CHUNK_BYTES)):
        begins = number * CHECKED_CHUNK_BYTES
        ends = min(begins + CHECKED_CHUNK_BYTES, size_bytes)
        chunk = b"".join(blob.chunks(begins, ends))
        at = number * _CHECKSUM_BYTES
        if zlib.crc32(chunk).to_bytes(_CHECKSUM_BYTES) != checksums[at : at + _CHECKSUM_BYTES]:
            raise BlobDamaged
        if begins < start or stop < ends:
            yield chunk[max(0, start - begins) : stop - begins]
        else:
            yield chunk
