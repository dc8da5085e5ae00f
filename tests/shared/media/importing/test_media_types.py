"""A declared type is kept when the content bears it out, dropped when it does not, refused when it hides danger."""

import pytest

from shared.media.errors import MediaTypeMismatch
from shared.media.importing.media_types import label
from tests.support.data.media_samples import JPEG, MP4, OGG, PDF, PNG, SAMPLES, Sample

PAGE = b"<!doctype html><title>Sign in</title>"
ELF = b"\x7fELF\x02\x01\x01" + bytes(100)
PE = b"MZ" + bytes(0x3A) + (0x80).to_bytes(4, "little") + bytes(0x40) + b"PE\0\0"
SCRIPT = b"#!/bin/sh\necho\n"
SVG = b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>'
ZIP = b"PK\x03\x04" + bytes(30)
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.media_type)
def test_a_true_type_is_kept_and_a_missing_one_recognized(sample: Sample) -> None:
    assert label(sample.media_type, sample.content) == sample.media_type
    assert label(None, sample.content) == sample.media_type


@pytest.mark.parametrize(
    ("declared", "head"),
    [
        ("image/jpeg", PNG.content),
        ("audio/ogg; codecs=opus", OGG.content),
        ("video/ogg", OGG.content),
        ("application/ogg", OGG.content),
        ("audio/mp4", MP4.content),
        (DOCX, ZIP),
        ("video/quicktime", b"\0\0\0\x08wide\0\0\x10\0mdat"),
        ("text/plain", b"How wide is it?"),
        ("image/svg+xml", SVG),
        ("text/html", PAGE),
        ("text/plain", PAGE),
        ("text/x-shellscript", SCRIPT),
        ("application/x-msdownload", PE),
        ("text/csv", b"MZ,a,b\n1,2,3\n"),
        ("text/plain", b"hello"),
        ("application/json", b'{"a": 1}'),
        ("audio/mpeg", b"\0" * 100),
        ("application/x-unheard-of", b"\x01\x02\x03"),
        ("image/x-unheard-of", b"\x01\x02\x03"),
        ("text/plain", b""),
    ],
)
def test_a_type_of_the_same_family_or_unknown_to_us_is_kept(declared: str, head: bytes) -> None:
    assert label(declared, head) == declared


@pytest.mark.parametrize(
    ("declared", "head"),
    [
        ("image/png", PDF.content),
        ("application/pdf", JPEG.content),
        ("application/pdf", ZIP),
        ("video/mp4", PNG.content),
        ("audio/ogg", JPEG.content),
        ("text/plain", PNG.content),
        ("image/png", b"not a picture"),
        ("image/png", b""),
        ("application/zip", b"\0\0\0\0"),
        ("application/octet-stream", PNG.content),
        ("application/octet-stream", PAGE),
        (None, b"who knows"),
        (None, PAGE),
        (None, ELF),
    ],
)
def test_wrong_or_missing_type_becomes_octet_stream(declared: str | None, head: bytes) -> None:
    assert label(declared, head) == "application/octet-stream"


@pytest.mark.parametrize("declared", ["image/png", "video/mp4", "application/pdf", DOCX, "audio/ogg"])
@pytest.mark.parametrize(
    "head", [PAGE, b"\xef\xbb\xbf \r\n<HTML >", b"<!-- x --><p>", SVG, ELF, PE, SCRIPT, b"<script>"]
)
def test_a_page_or_program_in_disguise_is_refused(declared: str, head: bytes) -> None:
    with pytest.raises(MediaTypeMismatch):
        label(declared, head)
