"""Multipart bodies for the tests, valid and invalid."""

from collections.abc import Iterator

BOUNDARY = b"bd-7f3a"
CONTENT_TYPE = "multipart/form-data; boundary=bd-7f3a"
HEADER = b'Content-Disposition: form-data; name="file"; filename="a.txt"\r\nContent-Type: text/plain'


def multipart(
    content: bytes, header: bytes = HEADER, *, before: bytes = b"", after: bytes = b"\r\n"
) -> bytes:
    """Return a body with one part."""
    return (
        before
        + b"--"
        + BOUNDARY
        + b"\r\n"
        + header
        + b"\r\n\r\n"
        + content
        + b"\r\n--"
        + BOUNDARY
        + b"--"
        + after
    )


class Pieces:
    """A body that arrives in pieces of given sizes, the last size for all the rest."""

    def __init__(self, body: bytes, *sizes: int) -> None:
        self.rest = memoryview(body)
        self.sizes: Iterator[int] = iter(sizes)
        self.size = len(body) or 1

    def readinto(self, buffer: memoryview) -> int:
        self.size = next(self.sizes, self.size)
        piece = self.rest[: min(self.size, len(buffer))]
        self.rest = self.rest[len(piece) :]
        buffer[: len(piece)] = piece
        return len(piece)


class Kept:
    """A sink that stores what is written to it."""

    def __init__(self) -> None:
        self.content = b""
        self.is_open = False

    def open(self) -> None:
        self.is_open = True

    def write(self, chunk: bytes | memoryview, /) -> None:
        self.content += chunk
