"""Small valid media files, with correct checksums.

They are built in code, so that a reader sees their content; file(1) recognizes each.
"""

import struct
import zlib
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A file of one media type."""

    file_name: str
    media_type: str
    content: bytes


def _png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 2, 2, 8, 2, 0, 0, 0)
    pixels = b"".join(b"\0" + bytes(colour) * 2 for colour in ((255, 0, 0), (0, 0, 255)))
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(pixels)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _jpeg() -> bytes:
    """Return a JPEG of one gray block: a DC difference of zero and an end of block."""

    def segment(marker: int, data: bytes) -> bytes:
        return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data

    one_code = bytes([1] + [0] * 15) + b"\0"
    return b"".join(
        (
            b"\xff\xd8",
            segment(0xE0, b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0"),
            segment(0xDB, b"\0" + bytes([1] * 64)),
            segment(0xC0, struct.pack(">BHHB", 8, 8, 8, 1) + bytes([1, 0x11, 0])),
            segment(0xC4, b"\x00" + one_code),
            segment(0xC4, b"\x10" + one_code),
            segment(0xDA, bytes([1, 1, 0, 0, 63, 0])),
            b"\x3f\xff\xd9",
        )
    )


def _pdf() -> bytes:
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 72 72] >>",
    )
    written, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"xref\n0 4\n0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % at for at in offsets)
    return written + table + b"trailer << /Size 4 /Root 1 0 R >>\nstartxref\n%d\n" % len(written) + b"%%EOF\n"


def _ogg() -> bytes:
    """Return an Opus stream of one silent frame, in three pages (RFC 3533, 7845)."""
    head = b"OpusHead" + struct.pack("<BBHIhB", 1, 1, 0, 48000, 0, 0)
    tags = b"OpusTags" + struct.pack("<I", 4) + b"test" + struct.pack("<I", 0)
    silence = b"\xf8\xff\xfe"
    return _page(0, 0, 2, head) + _page(1, 0, 0, tags) + _page(2, 960, 4, silence)


def _page(number: int, position: int, flags: int, packet: bytes) -> bytes:
    header = struct.pack("<4sBBqIIIB", b"OggS", 0, flags, position, 7, number, 0, 1) + bytes([len(packet)])
    page = bytearray(header + packet)
    page[22:26] = struct.pack("<I", _ogg_crc(page))
    return bytes(page)


def _ogg_crc(page: bytearray) -> int:
    crc = 0
    for byte in page:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1) ^ 0x04C11DB7 if crc & 0x80000000 else crc << 1
        crc &= 0xFFFFFFFF
    return crc


def _mp4() -> bytes:
    """Return a movie without tracks, as a recorder writes it that was stopped at once."""

    def box(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data) + 8) + kind + data

    matrix = struct.pack(">9I", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)
    times = struct.pack(">IIIII", 0, 0, 0, 1000, 0)
    header = times + struct.pack(">IHHII", 0x10000, 0x100, 0, 0, 0) + matrix + bytes(24)
    return (
        box(b"ftyp", b"isom" + struct.pack(">I", 512) + b"isomiso2mp41")
        + box(b"moov", box(b"mvhd", header + struct.pack(">I", 1)))
        + box(b"mdat", b"")
    )


PNG = Sample(file_name="pixel.png", media_type="image/png", content=_png())
JPEG = Sample(file_name="photo.jpg", media_type="image/jpeg", content=_jpeg())
PDF = Sample(file_name="page.pdf", media_type="application/pdf", content=_pdf())
OGG = Sample(file_name="voice.ogg", media_type="audio/ogg", content=_ogg())
MP4 = Sample(file_name="clip.mp4", media_type="video/mp4", content=_mp4())
SAMPLES = (PNG, JPEG, PDF, OGG, MP4)
