"""The one file part of an upload is parsed from all that clients send."""

import base64
import email.policy
import hashlib
import os
from email.message import EmailMessage
from typing import Any

import pytest
import requests

from shared.errors import DomainError
from shared.files.errors import ByteSizeMismatch, ContentTooLarge, DigestMismatch, FilePartRequired
from shared.files.resources import ReceivedContent
from shared.files.staging import DiscardSink
from tests.support.files.bodies import BOUNDARY, CONTENT_TYPE, HEADER, Kept, Pieces, multipart
from web.http.multipart import FilePartParser, receive_file_part
from web.http.requests import MalformedRequest, UnsupportedMediaType

MIB = 1 << 20


def receive(
    body: bytes,
    *piece_sizes: int,
    content_type: str = CONTENT_TYPE,
    byte_size: int | None = None,
    maximum_bytes: int = 64 * MIB,
    digests: tuple[str, ...] = (),
) -> tuple[ReceivedContent, bytes]:
    kept = Kept()
    part = receive_file_part(
        Pieces(body, *piece_sizes),
        content_type,
        byte_size=byte_size,
        maximum_bytes=maximum_bytes,
        sink=kept,
        body_digests=digests,
    )
    return part, kept.content


def receive_named(disposition: bytes, content_type: bytes = b"text/plain") -> ReceivedContent:
    header = b"Content-Disposition: " + disposition + b"\r\nContent-Type: " + content_type
    return receive(multipart(b"x", header))[0]


def test_a_part_is_received_with_its_name_type_size_and_digest() -> None:
    part, content = receive(multipart(b"hello"), byte_size=5)
    assert content == b"hello"
    assert part == ReceivedContent(
        file_name="a.txt", media_type="text/plain", byte_size=5, sha256=hashlib.sha256(b"hello").digest()
    )


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 4096])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\r\n",
        b"\r" * 300,
        b"\r\n--bd-7f3" * 40,
        b"\r\n--bd-7f3b\r\n",
        b"--bd-7f3a--",
        b"\n--bd-7f3a\r\n",
        os.urandom(3000),
    ],
)
def test_content_survives_any_division_into_pieces(content: bytes, size: int) -> None:
    part, received = receive(multipart(content), size)
    assert received == content
    assert part.sha256 == hashlib.sha256(content).digest()


def test_a_long_content_is_hashed_and_written_in_order() -> None:
    content = os.urandom(9 * MIB + 12345)
    part, received = receive(multipart(content), MIB, 3, 777_777, byte_size=len(content))
    assert received == content
    assert part.sha256 == hashlib.sha256(content).digest()


def test_the_sink_is_opened_once_the_header_is_known_and_not_before() -> None:
    sink = Kept()
    with pytest.raises(MalformedRequest):
        receive_file_part(Pieces(b"--" + BOUNDARY), CONTENT_TYPE, byte_size=1, maximum_bytes=9, sink=sink)
    assert not sink.is_open
    receive_file_part(Pieces(multipart(b"x")), CONTENT_TYPE, byte_size=1, maximum_bytes=9, sink=sink)
    assert sink.is_open


def test_content_that_goes_nowhere_is_hashed() -> None:
    part = receive_file_part(
        Pieces(multipart(b"again")), CONTENT_TYPE, byte_size=5, maximum_bytes=9, sink=DiscardSink()
    )
    assert part.sha256 == hashlib.sha256(b"again").digest()


def test_a_preamble_an_epilogue_and_padding_are_ignored() -> None:
    body = multipart(b"x", before=b"Hello\r\n", after=b" \t\r\nBye").replace(
        BOUNDARY + b"\r\n", BOUNDARY + b" \t\r\n"
    )
    assert receive(body)[1] == b"x"


@pytest.mark.parametrize("kept", range(len(multipart(b"content"))))
def test_a_body_that_ends_early_is_never_accepted(kept: int) -> None:
    whole = multipart(b"content", after=b"")
    assert receive(whole)[1] == b"content"
    with pytest.raises(DomainError) as refusal:
        receive(whole[: min(kept, len(whole) - 1)])
    assert refusal.value.code == "malformed_request"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"not multipart at all", id="no boundary"),
        pytest.param(b"x" * 5000, id="endless preamble"),
        pytest.param(multipart(b"x", before=b"p" * 2000 + b"\r\n"), id="long preamble"),
        pytest.param(multipart(b"x", after=b"\r\n" + b"e" * 2000), id="long epilogue"),
        pytest.param(multipart(b"x", after=b"garbage"), id="closing boundary with a tail"),
        pytest.param(multipart(b"x\r\n--bd-7f3aX\r\ny"), id="boundary with a tail"),
        pytest.param(multipart(b"x").replace(b"\r\n", b"\n"), id="bare line feeds"),
        pytest.param(multipart(b"x", HEADER + b"\r\nX: " + b"y" * 9000), id="long header"),
        pytest.param(multipart(b"x", HEADER + b"\r\nX: 1\n"), id="bare line feed in a header"),
        pytest.param(multipart(b"x", HEADER + b"\r\nX: a\0b"), id="NUL in a header"),
        pytest.param(multipart(b"x", HEADER.replace(b"; file", b";\r\n file")), id="folded header"),
        pytest.param(multipart(b"x", HEADER + b"\r\n" + HEADER), id="a header twice"),
        pytest.param(multipart(b"x", HEADER + b"\r\nno colon"), id="a line without a colon"),
        pytest.param(multipart(b"x", HEADER.replace(b"a.txt", b"\xff")), id="a name that is not UTF-8"),
        pytest.param(multipart(b"x", HEADER.replace(b'"a.txt"', b'"a.txt')), id="an open quote"),
        pytest.param(
            multipart(b"x", HEADER.replace(b'"file"', b'"file"; name="file"')), id="a parameter twice"
        ),
        pytest.param(multipart(b"x", HEADER + b"\r\nContent-Transfer-Encoding: base64"), id="base64"),
        pytest.param(multipart(b"x", HEADER + b"\r\nContent-Digest: sha-256=:AAAA:"), id="a short digest"),
    ],
)
@pytest.mark.parametrize("size", [1, 10_000])
def test_broken_framing_is_malformed(body: bytes, size: int) -> None:
    with pytest.raises(MalformedRequest):
        receive(body, size)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"--bd-7f3a--\r\n", id="no part"),
        pytest.param(multipart(b"x", b""), id="a part without headers"),
        pytest.param(multipart(b"x", HEADER.replace(b'"file"', b'"upload"')), id="another name"),
        pytest.param(multipart(b"x", HEADER.replace(b'; filename="a.txt"', b"")), id="no file name"),
        pytest.param(multipart(b"x", HEADER.replace(b"a.txt", b"")), id="an empty file name"),
        pytest.param(multipart(b"x", HEADER.partition(b"\r\n")[0]), id="no media type"),
        pytest.param(multipart(b"x", HEADER.replace(b"text/plain", b"text")), id="a malformed media type"),
        pytest.param(
            multipart(b"x", HEADER.replace(b"text/plain", b"text/" + b"x" * 300)), id="a long media type"
        ),
        pytest.param(multipart(b"x", HEADER.replace(b"form-data", b"attachment")), id="another disposition"),
        pytest.param(multipart(b"x").replace(b"--\r\n", b"\r\n") + multipart(b"y"), id="a second part"),
        pytest.param(b"".join([multipart(b"x")[:-4] + b"\r\n"] * 10_000), id="ten thousand parts"),
    ],
)
def test_anything_but_one_named_and_typed_part_called_file_is_refused(body: bytes) -> None:
    with pytest.raises(FilePartRequired):
        receive(body)


@pytest.mark.parametrize("byte_size", [0, 4, 6, 5000, MIB])
def test_content_of_another_size_than_announced_is_refused(byte_size: int) -> None:
    with pytest.raises(ByteSizeMismatch):
        receive(multipart(b"hello"), byte_size=byte_size)


def test_content_beyond_its_announced_size_is_refused_without_further_reads() -> None:
    kept = Kept()
    body = Pieces(multipart(b"x" * 50 * MIB))
    with pytest.raises(ByteSizeMismatch):
        receive_file_part(body, CONTENT_TYPE, byte_size=10, maximum_bytes=99, sink=kept)
    assert len(body.rest) > 49 * MIB
    assert kept.content == b""


def test_content_announced_beyond_the_maximum_is_refused_unread() -> None:
    body = Pieces(multipart(b"x"))
    with pytest.raises(ContentTooLarge) as refusal:
        receive_file_part(body, CONTENT_TYPE, byte_size=100, maximum_bytes=99, sink=DiscardSink())
    assert refusal.value.data == {"maximumBytes": 99}
    assert len(body.rest) == len(multipart(b"x"))


def test_content_of_unannounced_size_is_refused_beyond_the_maximum() -> None:
    assert receive(multipart(b"x" * 99), maximum_bytes=99)[0].byte_size == 99
    with pytest.raises(ContentTooLarge):
        receive(multipart(b"x" * 100), maximum_bytes=99)


def digest_header(content: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(content).digest()).decode()}:"


@pytest.mark.parametrize("name", [b"Content-Digest", b"repr-digest"])
def test_the_digest_of_the_part_is_checked_against_its_content(name: bytes) -> None:
    right, wrong = (
        HEADER + b"\r\n" + name + b": md5=:x:, " + digest_header(c).encode() for c in (b"right", b"wrong")
    )
    assert receive(multipart(b"right", right))[1] == b"right"
    with pytest.raises(DigestMismatch):
        receive(multipart(b"right", wrong))


def test_the_digest_of_the_request_is_checked_against_the_whole_body() -> None:
    body = multipart(b"x" * 5000)
    assert receive(body, 100, digests=("", digest_header(body)))[0].byte_size == 5000
    with pytest.raises(DigestMismatch):
        receive(body, 100, digests=(digest_header(b"other"), ""))


@pytest.mark.parametrize(
    "content_type",
    ["", "application/json", "multipart/mixed; boundary=bd-7f3a", "multipart/form-datax; boundary=bd-7f3a"],
)
def test_another_media_type_is_unsupported(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaType):
        receive(multipart(b"x"), content_type=content_type)


@pytest.mark.parametrize("boundary", ["", "b" * 71, '"a "', "a\u00e9", "a{b", "a; boundary=b"])
def test_a_boundary_outside_rfc_2046_is_malformed(boundary: str) -> None:
    with pytest.raises(MalformedRequest):
        receive(multipart(b"x"), content_type=f"multipart/form-data; boundary={boundary}")


@pytest.mark.parametrize(
    "boundary", ["x", "b" * 70, "----=_Part_1_23.45", "gc0p4Jq0M2Yt08jU534c0", "a b'()+_,-./:=?z"]
)
def test_every_boundary_of_rfc_2046_works(boundary: str) -> None:
    body = multipart(b"-\r\n-- x").replace(BOUNDARY, boundary.encode())
    content_type = f'Multipart/Form-Data; charset=utf-8; Boundary="{boundary}"'
    assert receive(body, 3, content_type=content_type)[1] == b"-\r\n-- x"


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        (b'filename="a b.txt"', "a b.txt"),
        (b"filename=a.txt", "a.txt"),
        (b'filename="say \\"hi\\".txt"', 'say "hi".txt'),
        (b'filename="say %22hi%22.txt"', 'say "hi".txt'),
        (b'filename="a%0D%0Ab"', "ab"),
        (b'filename="100%25.txt"', "100%25.txt"),
        (b'filename="C:\\dir\\new.txt"', "new.txt"),
        (b'filename="../../etc/passwd"', "passwd"),
        ('filename="Übergröße 😀.txt"'.encode(), "Übergröße 😀.txt"),
        (b"filename*=utf-8''na%C3%AFve%20file.txt", "naïve file.txt"),
        (b"filename=\"na_ve.txt\"; filename*=UTF-8'en'na%C3%AFve.txt", "naïve.txt"),
        (b"filename=\"plain.txt\"; filename*=iso-8859-1''na%EFve.txt", "plain.txt"),
        (b'filename="a;b=c,d.txt"', "a;b=c,d.txt"),
        (b'filename="\xe2\x80\xaegpj.exe"', "gpj.exe"),
        (b'filename="..."', "file"),
    ],
)
def test_file_names_are_read_as_clients_write_them(parameters: bytes, name: str) -> None:
    assert receive_named(b'form-data; name="file"; ' + parameters).file_name == name


def test_header_names_and_words_may_be_in_any_case() -> None:
    header = b'CONTENT-DISPOSITION:Form-Data;NAME=file;FileName="A.TXT"\r\ncontent-type:TEXT/Plain; Charset=UTF-8 ;'
    part, _ = receive(multipart(b"x", header))
    assert (part.file_name, part.media_type) == ("A.TXT", "text/plain; Charset=UTF-8")


NAMES = ["report.pdf", 'say "hi".txt', "Übergröße 😀.txt", "50% off.txt", "a;b.txt", "with\nnewline.txt"]


@pytest.mark.parametrize("name", NAMES)
def test_bodies_of_requests_are_understood(name: str) -> None:
    prepared = requests.Request(
        "POST", "http://x/", files={"file": (name, b"\r\n--content", "text/csv")}
    ).prepare()
    assert isinstance(prepared.body, bytes)
    part, content = receive(prepared.body, 10, content_type=prepared.headers["Content-Type"])
    assert (part.file_name, part.media_type, content) == (
        name.replace("\n", ""),
        "text/csv",
        b"\r\n--content",
    )


def test_bodies_of_the_standard_library_are_understood() -> None:
    message = EmailMessage(policy=email.policy.HTTP)
    message["Content-Disposition"] = "form-data"
    message.set_param("name", "file", header="Content-Disposition")
    message.set_param("filename", "naïve.bin", header="Content-Disposition", charset="utf-8")
    header = (
        f"Content-Disposition: {message['Content-Disposition']}\r\nContent-Type: application/octet-stream"
    )
    assert receive(multipart(b"x", header.encode()))[0].file_name == "naïve.bin"


DISPOSITION = b'Content-Disposition: form-data; name="file"; '
TYPE = b"\r\nContent-Type: text/plain"
EXTENDED = b"filename*=utf-8''caf%C3%A9%20%22q%22.txt"
OTHER_CLIENTS = {
    "httpx and undici": DISPOSITION + b'filename="caf\xc3\xa9 %22q%22.txt"' + TYPE,
    "aiohttp": TYPE[2:] + b"\r\n" + DISPOSITION + b'filename="caf%C3%A9%20%22q%22.txt"; ' + EXTENDED,
    "old urllib3": DISPOSITION + EXTENDED + TYPE,
    "go and old curl": DISPOSITION + b'filename="caf\xc3\xa9 \\"q\\".txt"' + TYPE,
    "java": DISPOSITION + b'filename="=?x?="; ' + EXTENDED + TYPE + b"\r\nContent-Transfer-Encoding: binary",
}


@pytest.mark.parametrize("client", OTHER_CLIENTS)
def test_part_headers_of_other_clients_are_understood(client: str) -> None:
    assert receive(multipart(b"x", OTHER_CLIENTS[client]))[0].file_name == 'café "q".txt'


def test_an_empty_file_is_a_file() -> None:
    part, _ = receive(multipart(b""), byte_size=0)
    assert part.sha256 == hashlib.sha256(b"").digest()


def test_hostile_content_is_scanned_in_few_steps() -> None:
    class CountedBytes(bytes):
        searches = 0

        def find(self, *args: Any) -> int:
            CountedBytes.searches += 1
            return super().find(*args)

    beginning = multipart(b"x").partition(b"x\r\n--")[0]
    for hostile in (b"\r" * MIB, b"\r\n" * (MIB // 2), (b"\r\n--bd-7f3" * MIB)[:MIB]):
        parser = FilePartParser(BOUNDARY)
        list(parser.receive(beginning, len(beginning)))
        CountedBytes.searches = 0
        list(parser.receive(CountedBytes(hostile), MIB))
        assert 0 < CountedBytes.searches < 20
