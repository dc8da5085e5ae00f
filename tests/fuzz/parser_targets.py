"""The hand-written parsers, each as a function of bytes that raises only if the parser breaks a rule.

A parser may refuse input with its documented errors only. An accepted value must be within its bounds, and the same
however the bytes were divided. `SEEDS` are inputs that each parser accepts; a search begins from them.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote_from_bytes

from flask import Request
from werkzeug.test import EnvironBuilder

from shared.egress.errors import AddressRefused, SchemeRefused, UrlRefused
from shared.egress.policy import EgressPolicy
from shared.egress.urls import parse_url
from shared.errors import DomainError, Kind
from shared.media.networks.registry import NETWORKS
from shared.media.networks.signatures import check_signed_headers, verify
from shared.media.networks.webhooks import SignatureInvalid, WebhookRequest
from shared.models.providers.connections import ChunkDecoder
from shared.models.providers.sse import SseParser
from tests.support.files.bodies import BOUNDARY, CONTENT_TYPE, HEADER, Kept, Pieces, multipart
from web.files.ranges import MAXIMUM_RANGES, Selection, select_bytes
from web.files.responses import read_preference
from web.http.multipart import receive_file_part
from web.http.negotiation import CSV, EVENT_STREAM, JSON, negotiate
from web.http.part_headers import read_boundary, read_digests, read_file_headers, read_form_part_header
from web.http.requests import MalformedJson, parse_json
from web.http.url_encoded import RepeatedField, TooManyFields, read_fields
from web.media.form_bodies import receive_form

REFUSALS = frozenset({Kind.MALFORMED, Kind.INVALID, Kind.TOO_LARGE, Kind.UNSUPPORTED_MEDIA_TYPE})
"""The kinds of refusal that a body may get."""
_MAXIMUM_BYTES = 1 << 16
_LONGEST_WAIT = 30.0
_SECRETS = {"signingSecret": "s" * 32, "authToken": "t" * 32, "appSecret": "a" * 32, "secretToken": "k" * 32}
_POLICY = EgressPolicy(allow_http=True)


def multipart_upload(data: bytes) -> None:
    """Any body is refused, or received the same however it is divided."""
    sizes, body = _divided(data)
    whole, received = _receive(body, []), _receive(body, sizes)
    assert received == whole or {received, whole} <= REFUSALS


def multipart_content(data: bytes) -> None:
    """Any content without its boundary is received exactly."""
    sizes, content = _divided(data)
    if b"\r\n--" + BOUNDARY not in content:
        assert _receive(multipart(content), sizes) == content


def multipart_form(data: bytes) -> None:
    """Any form is refused, or received the same however it is divided."""
    sizes, body = _divided(data)
    whole, received = _receive_form(body, []), _receive_form(body, sizes)
    assert received == whole or (isinstance(whole, Kind) and isinstance(received, Kind))


def part_header(data: bytes) -> None:
    """A part's header names a file, a field, or nothing."""
    with _refusing():
        read_form_part_header(data)
    with _refusing():
        read_boundary(data.decode("latin-1"))


def content_disposition(data: bytes) -> None:
    """A stored name contains no path, and no character that a header cannot repeat."""
    with _refusing():
        header = read_file_headers(data.decode("latin-1"), "text/plain", "")
        name = header.file_name
        assert name
        assert len(name.encode()) <= 255
        assert not {*name} & {"/", "\\", "\r", "\n", "\0"}


def digests(data: bytes) -> None:
    """Each accepted digest has the length of its algorithm."""
    with _refusing():
        assert {len(digest) for digest in read_digests(data.decode("latin-1"))} <= {32}


def url_encoded(data: bytes) -> None:
    """A parsed form is bounded, and parses to the same fields after it is encoded again."""
    with suppress(TooManyFields, RepeatedField, UnicodeDecodeError):
        fields = read_fields(data, maximum=20)
        assert len(fields) <= 20
        pairs = (f"{_encoded(name)}={_encoded(value)}" for name, value in fields.items())
        assert read_fields("&".join(pairs).encode(), maximum=20) == fields


def accept(data: bytes) -> None:
    """The chosen media type is one of those offered."""
    http = Request(EnvironBuilder().get_environ() | {"HTTP_ACCEPT": data.decode("latin-1")})
    for offered in ((JSON, EVENT_STREAM), (JSON, CSV)):
        assert negotiate(http, offered) in offered


def byte_ranges(data: bytes) -> None:
    """Ranges lie within the content, are not empty, not too many, and send no byte twice."""
    text = data.decode("latin-1")
    for name, size in (("Range", 0), ("Range", 1), ("Range", 1000), ("If-Match", 10), ("If-None-Match", 10)):
        headers = {name: text, **({"If-Range": '"x"'} if size == 1 else {})}
        with _refusing(Kind.RANGE_NOT_SATISFIABLE, Kind.PRECONDITION_FAILED):
            selected = select_bytes("GET", headers, entity_tag='"x"', byte_size=size)
            if not isinstance(selected, Selection):
                assert 0 < len(selected) <= MAXIMUM_RANGES
                assert all(0 <= at.start < at.stop <= size for at in selected)
                assert sum(map(len, selected)) <= size


def prefer(data: bytes) -> None:
    """The accepted wait is not longer than the service's own limit."""
    read = read_preference(data.decode("latin-1"), longest_wait_seconds=_LONGEST_WAIT)
    assert 0 <= read.wait_seconds <= _LONGEST_WAIT


def server_sent_events(data: bytes) -> None:
    """The events are the same however their bytes are divided."""
    sizes, stream = _divided(data)
    whole, divided = SseParser(), SseParser()
    events = [*whole.feed(stream), *whole.finish()]
    pieces = [event for piece in _pieces(stream, sizes) for event in divided.feed(piece)]
    assert [*pieces, *divided.finish()] == events
    assert not any(b"\n" in event.name.encode() or "\r" in event.name for event in events)


def chunked(data: bytes) -> None:
    """The data and the end are the same however the bytes are divided."""
    sizes, stream = _divided(data)
    whole, divided = ChunkDecoder(), ChunkDecoder()
    content = whole.feed(stream)
    assert b"".join(divided.feed(piece) for piece in _pieces(stream, sizes)) == content
    assert (divided.is_over, divided.is_broken) == (whole.is_over, whole.is_broken)


def json_body(data: bytes) -> None:
    """Accepted JSON can be encoded again as UTF-8, and then parses to the same value."""
    with suppress(MalformedJson):
        read = parse_json(data)
        assert parse_json(json.dumps(read, ensure_ascii=False).encode()) == read


def webhook(data: bytes) -> None:
    """A network's webhook is parsed or refused; an unsigned one is refused for its signature only."""
    headline, _, body = data.partition(b"\n\n")
    lines = (line.partition(":") for line in headline.decode("latin-1").split("\n"))
    headers = {name.strip().lower(): value.strip() for name, _, value in lines}
    url = "https://files.example/x?" + headers.get("query", "")
    for network in NETWORKS.values():
        request = WebhookRequest(
            method=headers.get("method", "POST"),
            public_url=url,
            query={"hub.verify_token": headers.get("token", ""), "hub.mode": "subscribe"},
            headers=headers,
            body=body,
            received_at=1_800_000_000.0,
        )
        for check in (check_signed_headers, verify):
            with suppress(SignatureInvalid):
                arguments: Any = (network.signature, request, _SECRETS)[
                    : 2 if check is check_signed_headers else 3
                ]
                check(*arguments)
        with suppress(SignatureInvalid):
            for part in network.accounts(request):
                network.attachments(part.request)
                network.messages(part.request)
            network.respond(request, _SECRETS)


def url(data: bytes) -> None:
    """An address is refused, or has a scheme, a host and a port."""
    with suppress(UrlRefused, SchemeRefused, AddressRefused):
        for text in (data.decode("latin-1"), data.decode("utf-8", "surrogateescape")):
            target = parse_url(text, _POLICY, with_secrets=False)
            assert target.scheme in ("http", "https")
            assert target.host
            assert 0 < target.port < 1 << 16


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        *(multipart_upload, multipart_content, multipart_form, part_header, content_disposition, digests),
        *(url_encoded, accept, byte_ranges, prefer, server_sent_events, chunked, json_body, webhook, url),
    )
}
_SLACK = (
    b'X-Slack-Signature: v0=00\nX-Slack-Request-Timestamp: 1800000000\n\n{"type":"event_callback",'
    b'"event":{"type":"message","channel":"C","ts":"1.2","files":[{"id":"F"}]}}'
)
_TWILIO = (
    b"Content-Type: application/x-www-form-urlencoded\nX-Twilio-Signature: x\n\n"
    b"MessageSid=SM1&NumMedia=1&MediaUrl0=https://a.example/b&From=%2B1"
)
_TELEGRAM = b'\n\n{"message":{"message_id":1,"chat":{"id":2},"photo":[{"file_id":"a","file_unique_id":"b"}]}}'
_WHATSAPP = (
    b'\n\n{"entry":[{"changes":[{"value":{"metadata":{"phone_number_id":"1"},"messages":[{"id":"w",'
    b'"type":"image","image":{"id":"2","mime_type":"image/png"}}]}}]}]}'
)
_DISCORD = (
    b'X-Signature-Ed25519: 00\n\n{"type":2,"id":"1","data":{"resolved":{"attachments":{"3":{"url":'
    b'"https://a.example/b","filename":"c"}}}}}'
)
_FORM_BODY = b'--%b\r\nContent-Disposition: form-data; name="messageId"\r\n\r\nm1\r\n' % BOUNDARY
SEEDS: Mapping[str, tuple[bytes, ...]] = {
    "multipart_upload": (b"\x03\x01\x09\x40" + multipart(b"content"),),
    "multipart_content": (b"\x03\x01\x09\x40\r\n--bd-7f3",),
    "multipart_form": (b"\x03\x01\x09\x40" + _FORM_BODY + multipart(b"content"),),
    "part_header": (HEADER, b'multipart/form-data; boundary="bd-7f3a"'),
    "content_disposition": (b'attachment; filename="a\\"b%22.txt"', b"x; filename*=UTF-8''%e2%82%ac.txt"),
    "digests": (b"sha-256=:" + b"A" * 43 + b"=:, sha-512=:x:",),
    "url_encoded": (b"a=1&b=%41+c&%C3%A9=",),
    "accept": (b"text/event-stream;q=0.9, application/*;q=0.8, */*;q=0.1", b'a/b;x="c,d";q=1'),
    "byte_ranges": (b"bytes=0-4, 10-20,-5", b'"x", W/"y"', b"*"),
    "prefer": (b'respond-async, wait="10"; x=1',),
    "server_sent_events": (b"\x03\x01\x02\x40\xef\xbb\xbfevent: a\r\ndata: 1\rdata\n\n: x\r\n\r\n",),
    "chunked": (b"\x03\x01\x02\x405;x=y\r\nhello\r\n0\r\nX: y\r\n\r\n",),
    "json_body": (b'{"a": [1, -2.5e3, "\\ud83d\\ude00", null, true]}',),
    "webhook": (_SLACK, _TWILIO, _TELEGRAM, _WHATSAPP, _DISCORD),
    "url": (b"https://user@example.com:8443/a?b#c", b"http://[::1]/", b"https://xn--nxasmq6b.example/"),
}


def _divided(data: bytes) -> tuple[list[int], bytes]:
    """Parse the rest of the input divided at positions that its first four bytes choose."""
    return [1 + size % 64 for size in data[:4]], data[4:]


def _pieces(stream: bytes, sizes: list[int]) -> Iterator[bytes]:
    at, turn = 0, 0
    while at < len(stream):
        size = sizes[turn % len(sizes)] if sizes else len(stream)
        yield stream[at : at + size]
        at, turn = at + size, turn + 1


def _receive(body: bytes, sizes: list[int]) -> bytes | Kind:
    kept = Kept()
    limits: Any = {"byte_size": None, "maximum_bytes": _MAXIMUM_BYTES, "sink": kept}
    try:
        receive_file_part(Pieces(body, *sizes), CONTENT_TYPE, **limits)
    except DomainError as refusal:
        return _allowed(refusal, REFUSALS)
    return kept.content


def _receive_form(body: bytes, sizes: list[int]) -> object:
    kept = Kept()
    names = frozenset({"messageId", "attachmentId"})
    try:
        form = receive_form(
            Pieces(body, *sizes), CONTENT_TYPE, names=names, maximum_bytes=_MAXIMUM_BYTES, sink=kept
        )
    except DomainError as refusal:
        return _allowed(refusal, REFUSALS)
    assert form.fields.keys() <= names
    return (dict(form.fields), kept.content, form.head)


@contextmanager
def _refusing(*kinds: Kind) -> Iterator[None]:
    """Accept refusals of these kinds, and those that every body may get."""
    try:
        yield
    except DomainError as refusal:
        _allowed(refusal, frozenset(kinds) or REFUSALS)


def _allowed(refusal: DomainError, kinds: Collection[Kind]) -> Kind:
    """Return the kind of a refusal that a parser may raise. Raises any other."""
    if refusal.kind not in kinds:
        raise refusal
    return refusal.kind


def _encoded(text: str) -> str:
    return quote_from_bytes(text.encode(), safe="")
