"""No private address is ever connected to, in any spelling and with any response of a name server."""

from collections.abc import Sequence

import pytest

from shared.egress.addresses import is_private, is_public
from shared.egress.errors import AddressRefused, ConnectionFailed, EgressError, SchemeRefused, UrlRefused
from shared.egress.fetch import ask
from shared.egress.policy import EgressPolicy
from shared.egress.post import post
from tests.shared.egress.asking import LENIENT, fetched, watched_connections
from tests.shared.egress.servers import Server, content, redirect, serve, serve_at_one_port

STRICT = EgressPolicy()
REFUSED = (
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.8.8.8",
    "168.63.129.16",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::a9fe:a9fe",
    "100::1",
    "2001::1",
    "2001:10::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
)
NEVER = (
    "0.0.0.0",
    "100.100.100.200",
    "168.63.129.16",
    "169.254.169.254",
    "169.254.170.2",
    "192.0.0.192",
    "224.0.0.1",
    "255.255.255.255",
    "::",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::a00:1",
    "64:ff9b:1::a9fe:a9fe",
    "2002:a9fe:a9fe::",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fe80::a9fe:a9fe",
    "fe80::1%eth0",
    "ff02::1",
)
"""Metadata servers, and what leads to them: translated addresses (NAT64, 6to4), links and groups."""
SPELLINGS_OF_LOOPBACK = (
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.1/",
    "http://0177.0.0.1/",
    "http://127.1/",
    "http://0/",
    "http://①②⑦.⓪.⓪.①/",
    "http://127。0。0。1/",
    "http://[::ffff:7f00:1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://media.example@127.0.0.1/",
    "http://127.0.0.1\\@media.example/",
    "http://media.example:80@127.0.0.1:80/",
    "http://127.0.0.1#@media.example/",
    "http:127.0.0.1/",
    "http:///127.0.0.1/",
    " http://127.0.0.1/",
    "http://127.0.0.1/\r\nHost: media.example",
)
PUBLIC = (
    "8.8.8.8",
    "93.184.216.34",
    "168.63.129.15",
    "2606:2800:220:1::1",
    "2a00:1450:4001::1",
    "::ffff:8.8.8.8",
)


@pytest.mark.parametrize("address", REFUSED)
def test_an_address_that_is_not_of_the_public_internet_is_refused(address: str) -> None:
    policy = EgressPolicy(resolve=lambda *_: [address])
    with watched_connections() as connected, pytest.raises(AddressRefused):
        fetched("http://media.example/", policy=policy)
    assert connected == []


def test_a_connection_is_seen_where_others_are_looked_for(server: Server) -> None:
    server.on("/", content(b"here"))
    with watched_connections() as connected:
        assert fetched(server.url()) == b"here"
    assert connected == [("127.0.0.1", server.port)]


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_of_the_public_internet_is_public(address: str) -> None:
    assert is_public(address)
    assert not is_private(address)


@pytest.mark.parametrize("url", SPELLINGS_OF_LOOPBACK)
def test_no_spelling_of_loopback_is_connected_to(url: str) -> None:
    with watched_connections() as connected, pytest.raises((AddressRefused, UrlRefused)):
        fetched(url, policy=STRICT)
    assert connected == []


@pytest.mark.parametrize("address", NEVER)
def test_metadata_servers_are_refused_where_private_addresses_are_allowed(address: str) -> None:
    policy = EgressPolicy(allow_private=True, allow_http=True, resolve=lambda *_: [address])
    with watched_connections() as connected, pytest.raises(AddressRefused):
        fetched("http://metadata.example/latest/", policy=policy)
    assert connected == []


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "gopher://127.0.0.1/", "ftp://127.0.0.1/", "dict:x", "//x/", ""]
)
def test_only_the_web_is_asked(url: str) -> None:
    with pytest.raises(SchemeRefused):
        fetched(url)


@pytest.mark.parametrize("port", [22, 25, 6379, 8080, 11211])
def test_only_the_ports_of_the_web_are_asked(port: int) -> None:
    with watched_connections() as connected, pytest.raises(AddressRefused):
        fetched(f"http://media.example:{port}/", policy=EgressPolicy(resolve=lambda *_: ["8.8.8.8"]))
    assert connected == []


def test_one_private_answer_among_public_ones_refuses_the_host() -> None:
    policy = EgressPolicy(resolve=lambda *_: ["93.184.216.34", "2606:2800:220:1::1", "10.0.0.1"])
    with watched_connections() as connected, pytest.raises(AddressRefused):
        fetched("http://media.example/", policy=policy)
    assert connected == []


def test_asking_and_posting_are_guarded_alike() -> None:
    with watched_connections() as connected:
        for url in ("https://127.0.0.1/", "https://localhost/", "https://[::1]/"):
            with pytest.raises(AddressRefused):
                ask(url, policy=STRICT)
            with pytest.raises(AddressRefused):
                post(url, body=b"{}", headers={}, policy=STRICT, deadline_seconds=5)
    assert connected == []


def test_a_host_without_addresses_may_have_some_later() -> None:
    def fail(*_: object) -> Sequence[str]:
        raise OSError("no such host")

    with pytest.raises(ConnectionFailed) as caught:
        fetched("http://media.example/", policy=EgressPolicy(resolve=fail))
    assert caught.value.is_transient


def test_four_addresses_of_a_host_are_tried_and_no_fifth() -> None:
    silent = [f"127.0.1.{number}" for number in range(1, 5)]
    with serve_at_one_port("127.0.0.1") as (server,):
        server.on("/", content(b"here"))

        def ask_behind(count: int) -> bytes:
            addresses = [*silent[:count], "127.0.0.1"]
            policy = EgressPolicy(allow_private=True, allow_http=True, resolve=lambda *_: addresses)
            return fetched(server.url(host="media.example"), policy=policy)

        assert ask_behind(3) == b"here"
        with pytest.raises(ConnectionFailed):
            ask_behind(4)
        assert server.connections == 1


class SecondLoopbackIsPublic(EgressPolicy):
    """A policy that takes 127.0.0.2 for public, and 127.0.0.1 for forbidden."""

    def is_allowed(self, address: str) -> bool:
        return address == "127.0.0.2"

    def is_port_allowed(self, port: int) -> bool:  # noqa: ARG002 (any)
        return True


class Rebinding:
    """Answers with each address in turn."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.asked = 0

    def __call__(self, *_: object) -> Sequence[str]:
        self.asked += 1
        return [self.addresses[(self.asked - 1) % len(self.addresses)]]


def test_a_name_that_answers_differently_the_next_time_gains_nothing() -> None:
    with serve_at_one_port("127.0.0.2", "127.0.0.1") as (public, private):
        public.on("/", content(b"public"))
        rebinding = Rebinding("127.0.0.2", "127.0.0.1")
        policy = SecondLoopbackIsPublic(resolve=rebinding)
        assert fetched(public.url(host="media.example"), policy=policy) == b"public"
        assert rebinding.asked == 1
        with pytest.raises(AddressRefused):
            fetched(public.url(host="media.example"), policy=policy)
        assert rebinding.asked == 2
        assert private.connections == 0


def test_a_redirect_to_a_name_that_has_moved_inside_is_refused() -> None:
    with serve_at_one_port("127.0.0.2", "127.0.0.1") as (public, private):
        public.on("/", redirect("/again"))
        policy = SecondLoopbackIsPublic(resolve=Rebinding("127.0.0.2", "127.0.0.1"))
        with pytest.raises(AddressRefused):
            fetched(public.url(host="media.example"), policy=policy)
        assert private.connections == 0


@pytest.mark.parametrize(
    ("location", "refusal"),
    [
        ("http://169.254.169.254/latest/meta-data/", AddressRefused),
        ("http://[::ffff:169.254.169.254]/", AddressRefused),
        ("file:///etc/passwd", SchemeRefused),
        ("gopher://127.0.0.1:6379/_FLUSHALL", SchemeRefused),
        ("data:text/plain,hello", SchemeRefused),
        ("http://user:password@127.0.0.1/", UrlRefused),
        ("http://[::1", UrlRefused),
        ("http://\x00/", UrlRefused),
    ],
)
def test_a_redirect_is_judged_like_the_first_address(
    server: Server, location: str, refusal: type[EgressError]
) -> None:
    server.on("/", redirect(location))
    with pytest.raises(refusal):
        fetched(server.url())


def test_a_redirect_to_another_port_is_refused() -> None:
    class OnePort(SecondLoopbackIsPublic):
        def is_port_allowed(self, port: int) -> bool:
            return port == public.port

    with serve(address="127.0.0.2") as public:
        public.on("/", redirect("http://127.0.0.2:6379/"))
        with watched_connections() as connected, pytest.raises(AddressRefused):
            fetched(public.url(host="127.0.0.2"), policy=OnePort())
    assert connected == [("127.0.0.2", public.port)]


def test_neither_proxies_nor_netrc_of_the_environment_are_used(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    netrc = tmp_path_factory.mktemp("home") / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    server.on("/", content(b"direct"))
    with serve() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url())
        monkeypatch.delenv("no_proxy", raising=False)
        assert fetched(server.url(), policy=LENIENT) == b"direct"
        assert proxy.connections == 0
    assert "authorization" not in server.headers_at("/")
