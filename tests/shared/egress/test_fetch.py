"""What a source may do to us: nothing but answer, in time and within bounds."""

import gzip
import json
import logging
import socket
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest

from shared.egress import deadlines, errors
from shared.egress.deadlines import Deadline, Pace
from shared.egress.exchanges import Request, exchange
from shared.egress.fetch import FetchLimits, ask, fetch
from shared.egress.policy import EgressPolicy
from shared.egress.post import PostResult, post
from shared.egress.urls import parse_url
from shared.runtime.log_writer import configure_logging
from tests.shared.egress.asking import HASTY, LENIENT, LIMITS, fetched
from tests.shared.egress.servers import Answer, Server, content, drip, endless, redirect, say, serve, silence
from tests.support.data.monotonic_clock import MonotonicClock

MEBIBYTE = 1 << 20
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def named(*hosts: str) -> EgressPolicy:
    """The lenient rules, with these names on loopback."""
    return EgressPolicy(
        allow_private=True, allow_http=True, resolve=lambda host, _: ["127.0.0.1"] if host in hosts else []
    )


def test_a_source_is_fetched_whole(server: Server) -> None:
    body = bytes(range(256)) * 300
    server.on("/a.png?x=1", content(body, "Content-Type: Image/PNG; charset=x", "X-Other: y"))
    with fetch(server.url("/a.png?x=1#part"), policy=LENIENT, limits=LIMITS) as answer:
        assert (answer.status, answer.media_type, answer.content_length) == (200, "image/png", len(body))
        assert answer.headers["x-other"] == "y"
        assert b"".join(answer.chunks()) == body
        assert answer.bytes_read == len(body)


@pytest.mark.parametrize(
    "answer",
    [
        say("HTTP/1.1 200 OK\nTransfer-Encoding: chunked", b"5\r\nhello\r\n0\r\n\r\n"),
        say("HTTP/1.1 200 OK\nContent-Length: 5", b"hello and more"),
        say("HTTP/1.0 200 OK", b"hello"),
        say("HTTP/1.1 200 OK\nContent-Length: 5\nContent-Encoding: identity", b"hello"),
        say("HTTP/1.1 100 Continue\n\nHTTP/1.1 200 OK\nContent-Length: 5", b"hello"),
        say("HTTP/1.1 103 Early Hints\nLink: </a>\n\nHTTP/1.1 200 OK\nContent-Length: 5", b"hello"),
    ],
)
def test_every_framing_of_http_is_understood(server: Server, answer: Answer) -> None:
    server.on("/", answer)
    assert fetched(server.url()) == b"hello"


@pytest.mark.parametrize(
    "answer",
    [
        say("HTTP/1.1 200 OK\nContent-Length: 50", b"hello"),
        say("HTTP/1.1 200 OK\nTransfer-Encoding: chunked", b"5\r\nhello\r\n"),
        say("HTTP/1.1 200 OK\nTransfer-Encoding: chunked", b"50\r\nhello"),
        say("HTTP/1.1 200 OK\nContent-Length: -5", b"hello"),
        say("HTTP/1.1 200 OK\nContent-Length: five", b"hello"),
        say("HTTP/1.1 200 OK\nContent-Length: +5", b"hello"),
        lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/pl"),
        lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\n"),
        lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nX: y\r\n"),
    ],
)
def test_what_ends_early_is_not_taken_for_whole(server: Server, answer: Answer) -> None:
    server.on("/", answer)
    with pytest.raises(errors.SourceTruncated) as caught:
        fetched(server.url())
    assert caught.value.is_transient


@pytest.mark.parametrize(
    "answer",
    [
        say("SSH-2.0-OpenSSH_9.9"),
        say("HTTP/1.1 200 OK\nContent-Length: 5\nContent-Length: 6", b"hello!"),
        say("HTTP/1.1 200 OK\nTransfer-Encoding: chunked", b"zz\r\nhello\r\n0\r\n\r\n"),
        endless(CHUNKED, b"x" * 4096),
        endless(CHUNKED + b"-1\r\n", b"x" * 4096),
        say("HTTP/1.1 200 OK\nX: " + "y" * 70_000),
        say("HTTP/1.1 200 OK\n" + "\n".join(f"X-{number}: y" for number in range(200))),
        lambda _: None,
    ],
)
def test_what_is_not_http_fails(server: Server, answer: Answer) -> None:
    server.on("/", answer)
    with pytest.raises((errors.ConnectionFailed, errors.SourceTruncated)):
        fetched(server.url())


def test_a_length_beyond_the_limit_is_refused_before_the_body(server: Server) -> None:
    server.on("/", silence(b"HTTP/1.1 200 OK\r\nContent-Length: 100001\r\n\r\n"))
    with pytest.raises(errors.MediaTooLarge):
        fetched(server.url())


@pytest.mark.parametrize(
    "answer",
    [
        endless(CHUNKED, b"1000\r\n" + b"x" * 4096 + b"\r\n"),
        endless(b"HTTP/1.0 200 OK\r\n\r\n", b"x" * 4096),
    ],
)
def test_a_body_without_end_is_cut_at_the_limit(server: Server, answer: Answer) -> None:
    server.on("/", answer)
    kept: list[bytes] = []
    with fetch(server.url(), policy=LENIENT, limits=LIMITS) as source, pytest.raises(errors.MediaTooLarge):
        kept.extend(source.chunks())
    assert len(b"".join(kept)) <= LIMITS.maximum_bytes


def test_a_body_of_exactly_the_limit_is_accepted(server: Server) -> None:
    server.on("/", content(b"x" * LIMITS.maximum_bytes))
    assert len(fetched(server.url())) == LIMITS.maximum_bytes


@pytest.mark.parametrize(
    "answer",
    [
        drip(b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n", b"x"),
        drip(CHUNKED, b"1\r\nx\r\n"),
        drip(b"HTTP/1.0 200 OK\r\n\r\n", b"x"),
        drip(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
        drip(b"HTTP/1.1 200 OK\r\nX: ", b"y"),
        drip(b"HTTP/1.1 ", b"2"),
        drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        drip(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
        silence(),
    ],
)
def test_a_source_that_drips_meets_the_deadline(server: Server, answer: Answer) -> None:
    server.on("/", answer)
    with pytest.raises(errors.FetchTimedOut) as caught:
        fetched(server.url(), limits=HASTY)
    assert caught.value.is_transient


def test_the_deadline_covers_all_redirects_together(server: Server) -> None:
    for number in range(3):
        server.on(f"/{number}", redirect(f"/{number + 1}"))
    server.on("/3", silence())
    with pytest.raises(errors.FetchTimedOut):
        fetched(server.url("/0"), limits=HASTY)
    assert [asked.path for asked in server.asked] == ["/0", "/1", "/2", "/3"]


def test_a_source_that_falls_silent_is_left_before_the_deadline(server: Server) -> None:
    server.on("/", silence(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"))
    with pytest.raises(errors.FetchTimedOut):
        fetched(server.url(), limits=FetchLimits(maximum_bytes=10, deadline_seconds=600, idle_seconds=0.2))


def test_a_source_that_drips_is_left_when_its_grace_is_over(server: Server) -> None:
    server.on("/", drip(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"x"))
    limits = FetchLimits(
        maximum_bytes=100_000,
        deadline_seconds=600,
        idle_seconds=10,
        pace=Pace(grace_seconds=0.3, minimum_bytes_per_second=100_000),
    )
    with pytest.raises(errors.FetchTimedOut):
        fetched(server.url(), limits=limits)


def test_a_source_that_keeps_the_pace_has_longer_than_the_grace(server: Server) -> None:
    body = b"x" * 20 * 65536

    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        pause = threading.Event()
        for start in range(0, len(body), 65536):
            connection.sendall(body[start : start + 65536])
            pause.wait(0.03)

    server.on("/", answer)
    limits = FetchLimits(
        maximum_bytes=len(body),
        deadline_seconds=600,
        idle_seconds=10,
        pace=Pace(grace_seconds=0.3, minimum_bytes_per_second=1000),
    )
    assert fetched(server.url(), limits=limits) == body


def test_pace_does_not_count_the_time_of_writing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is slow for a minute is not the source's fault; what the source then takes counts again."""
    body = b"x" * MEBIBYTE
    server.on("/", content(body))
    clock = MonotonicClock()
    monkeypatch.setattr(deadlines, "time", clock)
    pace = Pace(grace_seconds=5, minimum_bytes_per_second=MEBIBYTE)
    request = Request(method="GET", target=parse_url(server.url(), LENIENT, with_secrets=False), headers={})
    with (
        Deadline(600, pace, has_timer=False) as deadline,
        exchange(request, policy=LENIENT, deadline=deadline, idle_seconds=10) as reply,
    ):
        pieces = reply.chunks(MEBIBYTE)
        first = next(pieces)
        clock.move(60)
        assert not deadline.abort_if_over()
        assert first + b"".join(pieces) == body
        assert not deadline.abort_if_over()
        clock.move(7)
        assert deadline.abort_if_over()


def test_a_name_server_that_does_not_answer_meets_the_deadline() -> None:
    over = threading.Event()

    def wait(*_: object) -> list[str]:
        over.wait()
        return []

    with pytest.raises(errors.FetchTimedOut):
        fetched("http://media.example/", policy=EgressPolicy(resolve=wait), limits=HASTY)
    over.set()


def test_nobody_listening_may_pass() -> None:
    with serve() as server:
        url = server.url()
    with pytest.raises(errors.ConnectionFailed) as caught:
        fetched(url)
    assert caught.value.is_transient


@pytest.mark.parametrize(
    "encoding", ["Content-Encoding: gzip", "Content-Encoding: br, gzip", "Transfer-Encoding: gzip, chunked"]
)
def test_nothing_is_ever_decompressed(server: Server, encoding: str) -> None:
    bomb = gzip.compress(bytes(20 * MEBIBYTE))
    server.on("/", content(bomb, encoding))
    with pytest.raises(errors.EncodingRefused) as caught:
        fetched(server.url())
    assert not caught.value.is_transient
    assert server.headers_at("/")["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    ("status", "is_transient"), [(404, False), (403, False), (206, False), (204, False), (503, True)]
)
def test_a_status_other_than_200_is_an_error(server: Server, status: int, is_transient: bool) -> None:
    server.on("/", content(b"", "Retry-After: 17", status=f"{status} Status"))
    with pytest.raises(errors.SourceStatusError) as caught:
        fetched(server.url())
    error = caught.value
    assert (error.status, error.is_transient, error.retry_after_seconds) == (status, is_transient, 17)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Fri, 01 Jan 9999 00:00:00 GMT", 86_400),
        ("Wed, 21 Oct 9999999999999999999999 07:28:00 GMT", None),
        ("soon", None),
        ("-3", None),
        ("9999999", 86_400),
    ],
)
def test_only_a_sane_retry_after_is_believed(server: Server, value: str, seconds: int | None) -> None:
    server.on("/", content(b"", f"Retry-After: {value}", status="503 Busy"))
    with pytest.raises(errors.SourceStatusError) as caught:
        fetched(server.url())
    assert caught.value.retry_after_seconds == seconds


def test_redirects_are_followed_as_far_as_allowed(server: Server) -> None:
    server.on("/a", redirect("b", status="301 Moved"))
    server.on("/b", redirect(server.url("/c?d=e"), status="303 See Other"))
    server.on("/c?d=e", redirect("/d", status="307 Temporary"))
    server.on("/d", content(b"there"))
    assert fetched(server.url("/a")) == b"there"
    server.on("/", redirect("/a"))
    with pytest.raises(errors.TooManyRedirects):
        fetched(server.url("/"))


def test_a_redirect_in_a_circle_ends(server: Server) -> None:
    server.on("/", redirect("/"))
    with pytest.raises(errors.TooManyRedirects):
        fetched(server.url())
    assert len(server.asked) == LIMITS.maximum_redirects + 1


def test_a_redirect_without_an_address_is_an_answer(server: Server) -> None:
    server.on("/", content(b"", status="302 Found"))
    with pytest.raises(errors.SourceStatusError):
        fetched(server.url())


def test_cookies_do_not_travel_along_redirects(server: Server) -> None:
    server.on("/", redirect("/next", "Set-Cookie: session=1; Path=/"))
    server.on("/next", content(b""))
    fetched(server.url())
    assert "cookie" not in server.headers_at("/next")


SECRET = {"Authorization": "Bearer secret", "X-Key": "secret"}


def test_credentials_go_to_the_first_host_and_to_trusted_ones(server: Server) -> None:
    policy = named("files.example", "edge.example", "a.cdn.example")
    server.on("/0", redirect("/1"))
    server.on("/1", redirect(server.url("/2", host="edge.example")))
    server.on("/2", redirect(server.url("/3", host="a.cdn.example")))
    server.on("/3", content(b""))
    url = server.url("/0", host="files.example")
    fetched(url, policy=policy, headers=SECRET, trusted_hosts={"Edge.example", ".cdn.example"})
    for path in ("/0", "/1", "/2", "/3"):
        assert server.headers_at(path)["authorization"] == "Bearer secret"
        assert server.headers_at(path)["x-key"] == "secret"


@pytest.mark.parametrize(
    "elsewhere", ["cdn.example", "files.example.evil.example", "xfiles.example", "evilcdn.example"]
)
def test_credentials_go_to_nobody_else(server: Server, elsewhere: str) -> None:
    server.on("/0", redirect(server.url("/1", host=elsewhere)))
    server.on("/1", content(b"there"))
    url = server.url("/0", host="files.example")
    options: dict[str, Any] = {"headers": SECRET, "trusted_hosts": {"other.example", ".files.example"}}
    assert fetched(url, policy=named("files.example", elsewhere), **options) == b"there"
    assert "authorization" in server.headers_at("/0")
    assert not {"authorization", "x-key"} & server.headers_at("/1").keys()


def test_credentials_that_were_dropped_do_not_come_back(server: Server) -> None:
    server.on("/0", redirect(server.url("/1", host="evil.example")))
    server.on("/1", redirect(server.url("/2", host="files.example")))
    server.on("/2", content(b""))
    fetched(
        server.url("/0", host="files.example"), policy=named("files.example", "evil.example"), headers=SECRET
    )
    assert "authorization" not in server.headers_at("/2")


def test_another_port_of_the_same_host_is_another_server(server: Server) -> None:
    with serve() as other:
        other.on("/1", content(b""))
        server.on("/0", redirect(other.url("/1")))
        fetched(server.url("/0"), headers=SECRET)
        assert "authorization" not in other.headers_at("/1")


def test_content_may_come_over_http_but_credentials_do_not_go_over_it(server: Server) -> None:
    server.on("/", content(b"open"))
    policy = EgressPolicy(allow_private=True)
    assert fetched(server.url(), policy=policy) == b"open"
    with pytest.raises(errors.SchemeRefused):
        fetched(server.url(), policy=policy, headers=SECRET)
    with pytest.raises(errors.SchemeRefused):
        ask(server.url(), policy=policy)
    with pytest.raises(errors.SchemeRefused):
        post(server.url(), body=b"", headers={}, policy=policy, deadline_seconds=5)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "internal"},
        {"Content-Length": "5"},
        {"transfer-encoding": "chunked"},
        {"Proxy-Authorization": "x"},
        {"Range": "bytes=0-1"},
        {"Accept-Encoding": "gzip"},
        {"X-A": "b\r\nHost: internal"},
        {"X-A\r\nHost": "internal"},
        {"X A": "b"},
        {"X-A": "ä"},
        {"": "b"},
        {"X-A": "b" * 9000},
        {f"X-{number}": "b" for number in range(40)},
    ],
)
def test_headers_that_are_ours_to_say_are_refused(server: Server, headers: Mapping[str, str]) -> None:
    requests: tuple[Callable[[], object], ...] = (
        lambda: fetched(server.url(), headers=headers),
        lambda: ask(server.url(), headers, policy=LENIENT),
        lambda: post(server.url(), body=b"", headers=headers, policy=LENIENT, deadline_seconds=5),
    )
    for request in requests:
        with pytest.raises(errors.HeaderRefused):
            request()
    assert server.connections == 0


def test_an_api_is_asked(server: Server) -> None:
    server.on("/api", content(b'{"ok": true}'))
    assert ask(server.url("/api"), {"Authorization": "Bearer b"}, policy=LENIENT) == b'{"ok": true}'
    assert ask(server.url("/api"), policy=LENIENT, method="POST", body=b"{}") == b'{"ok": true}'
    assert [(asked.method, asked.body) for asked in server.asked] == [("GET", b""), ("POST", b"{}")]
    server.on("/moved", redirect("/api"))
    with pytest.raises(errors.SourceStatusError):
        ask(server.url("/moved"), policy=LENIENT)
    with pytest.raises(errors.MediaTooLarge):
        ask(server.url("/api"), policy=LENIENT, maximum_bytes=3)


def test_what_an_api_says_to_its_refusal_is_not_decompressed_either(server: Server) -> None:
    packed = gzip.compress(bytes(1000))
    server.on("/api", content(packed, "Content-Encoding: gzip", status="400 Bad Request"))
    with pytest.raises(errors.SourceStatusError) as caught:
        ask(server.url("/api"), policy=LENIENT)
    assert caught.value.answer == packed


def test_a_post_tells_the_status_and_follows_nothing(server: Server) -> None:
    server.on("/hook", redirect("/other", "Retry-After: 3", status="307 Temporary"))
    headers = {"Content-Type": "application/json", "webhook-id": "1"}
    posted = post(server.url("/hook"), body=b"{}", headers=headers, policy=LENIENT, deadline_seconds=5)
    assert posted == PostResult(status=307, retry_after_seconds=3)
    (asked,) = server.asked
    assert (asked.method, asked.body, asked.headers["content-type"]) == ("POST", b"{}", "application/json")
    assert asked.headers["webhook-id"] == "1"


def test_a_post_does_not_wait_for_the_rest_of_an_answer(server: Server) -> None:
    server.on("/hook", silence(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"))
    posted = post(server.url("/hook"), body=b"{}", headers={}, policy=LENIENT, deadline_seconds=30)
    assert posted.status == 200


def test_a_post_that_is_not_answered_times_out(server: Server) -> None:
    server.on("/hook", silence())
    with pytest.raises(errors.FetchTimedOut):
        post(server.url("/hook"), body=b"{}", headers={}, policy=LENIENT, deadline_seconds=0.3)


TOKEN = uuid4().hex


@pytest.mark.parametrize(
    "answer",
    [
        content(b"ok"),
        content(b"", status="404 No"),
        say("nonsense"),
        say("HTTP/1.1 200 OK\nbroken header\nContent-Length: 0"),
        silence(),
        redirect(f"/bot1:{TOKEN}/x"),
    ],
)
def test_no_path_or_query_appears_in_logs_or_errors(
    server: Server, answer: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    path = f"/bot1:{TOKEN}/file?grant={TOKEN}"
    server.on(path, answer)
    told = ""
    with debug_logging():
        try:
            fetched(server.url(path), limits=HASTY, headers={"Authorization": TOKEN})
        except errors.EgressError as error:
            told = "".join(traceback.format_exception(error)) + repr(error) + repr(error.args)
    logged = capsys.readouterr().out
    ours = [line for line in map(json.loads, logged.splitlines()) if line["event"] == "egress.ended"]
    assert [line["host"] for line in ours] == ["127.0.0.1"]
    assert TOKEN not in told + logged


@contextmanager
def debug_logging() -> Iterator[None]:
    """Log at DEBUG, like a process that is configured to."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    configure_logging("DEBUG")
    try:
        yield
    finally:
        for handler in root.handlers:
            handler.close()  # which writes what it keeps
        root.handlers[:] = handlers
        root.setLevel(level)
