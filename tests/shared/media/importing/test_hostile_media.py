"""With any behavior of a source, its import ends in the documented state and leaves nothing behind."""

import gzip
import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shared.egress.addresses import is_public
from shared.egress.policy import EgressPolicy
from shared.media.attachments import Attachment
from shared.media.importing.imports import Import, ImportState
from tests.shared.media.conftest import Desk, Mailbox, attachment, make_desk
from tests.support.data.media_samples import JPEG, PDF, PNG, Sample
from tests.support.data.media_sources import (
    MediaSource,
    Respond,
    chunked,
    content,
    cut_off,
    endless,
    redirect,
    status,
)

METADATA_SERVER = "http://169.254.169.254/latest/meta-data/"
PAGE = b"<!DOCTYPE html><html><body>Please sign in</body></html>"
PROGRAM = b"\x7fELF" + bytes(200)


@pytest.fixture
def strict(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Return a worker with low limits and two attempts."""
    return _strict_desk(desk, monkeypatch)


@pytest.fixture
def impatient(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Return a worker that also has a short deadline."""
    return _strict_desk(desk, monkeypatch, media_fetch_seconds=0.4)


def _strict_desk(desk: Desk, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Desk:
    return make_desk(
        desk.database,
        desk.store,
        desk.source,
        monkeypatch,
        media_attempts=2,
        max_media_bytes=100_000,
        **options,
    )


def endless_media(source: MediaSource) -> Respond:
    return endless(source, PNG.content + bytes(4096))


def bomb(source: MediaSource) -> Respond:
    return content(gzip.compress(bytes(1 << 20)), "image/png", **{"Content-Encoding": "gzip"})


def too_large(source: MediaSource) -> Respond:
    return content(bytes(200_000), "image/png")


def truncated(source: MediaSource) -> Respond:
    return cut_off(PNG.content, 50_000)


def circle(source: MediaSource) -> Respond:
    return redirect("/hostile")


def to_metadata(source: MediaSource) -> Respond:
    return redirect(METADATA_SERVER)


def to_another_scheme(source: MediaSource) -> Respond:
    return redirect("file:///etc/passwd")


def page(source: MediaSource) -> Respond:
    return content(PAGE, "image/png")


def unannounced_page(source: MediaSource) -> Respond:
    return chunked(b"\r\n ", PAGE, media_type="image/png")


def program(source: MediaSource) -> Respond:
    return content(PROGRAM, "image/png")


def script(source: MediaSource) -> Respond:
    return content(b"#!/bin/sh\nrm -rf /\n", "image/png")


def drawing(source: MediaSource) -> Respond:
    return content(b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>", "image/png")


HOSTILE: dict[Callable[[MediaSource], Respond], str] = {
    endless_media: "media_too_large",
    too_large: "media_too_large",
    bomb: "encoding_refused",
    truncated: "source_truncated",
    circle: "too_many_redirects",
    to_metadata: "address_refused",
    to_another_scheme: "scheme_refused",
    page: "media_type_mismatch",
    unannounced_page: "media_type_mismatch",
    program: "media_type_mismatch",
    script: "media_type_mismatch",
    drawing: "media_type_mismatch",
    lambda _: status(404): "media_gone",
    lambda _: status(410): "media_gone",
    lambda _: status(403): "network_credentials_refused",
    lambda _: status(400): "source_answered",
    lambda _: status(204): "source_answered",
}


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda hostile: HOSTILE[hostile] + "." + hostile.__name__)
def test_hostile_media_fails_with_its_code_and_leaves_nothing(
    strict: Desk, mailbox: Mailbox, hostile: Callable[[MediaSource], Respond]
) -> None:
    url = strict.source.serve("/hostile", hostile(strict.source))
    failed = import_one(strict, mailbox, attachment(url))
    assert (failed.state, failed.code) == (ImportState.FAILED, HOSTILE[hostile])
    require_nothing_left(strict, mailbox)


def test_a_source_that_drips_is_given_up(impatient: Desk, mailbox: Mailbox) -> None:
    dripping = endless(impatient.source, b"\0", pause_seconds=0.05)
    failed = import_one(impatient, mailbox, attachment(impatient.source.serve("/hostile", dripping)))
    assert (failed.state, failed.code) == (ImportState.FAILED, "fetch_timed_out")
    require_nothing_left(impatient, mailbox)


@pytest.mark.parametrize(
    ("declared", "code"),
    [
        ({"size_bytes": len(PNG.content) + 1}, "byte_size_mismatch"),
        ({"size_bytes": len(PNG.content) - 1}, "byte_size_mismatch"),
        ({"size_bytes": 200_000}, "media_too_large"),
        ({"sha256": hashlib.sha256(b"else").digest()}, "digest_mismatch"),
    ],
)
@pytest.mark.parametrize("is_length_told", [True, False])
def test_announced_size_and_digest_must_match(
    strict: Desk, mailbox: Mailbox, declared: dict[str, Any], code: str, is_length_told: bool
) -> None:
    answer = content(PNG.content) if is_length_told else chunked(PNG.content)
    url = strict.source.serve("/announced", answer)
    failed = import_one(strict, mailbox, attachment(url, **declared))
    assert (failed.state, failed.code) == (ImportState.FAILED, code)
    require_nothing_left(strict, mailbox)


def test_content_that_matches_its_announcement_is_stored(strict: Desk, mailbox: Mailbox) -> None:
    digest = hashlib.sha256(PNG.content).digest()
    wanted = attachment(
        strict.source.serve("/announced", content(PNG.content)),
        size_bytes=len(PNG.content),
        sha256=digest,
    )
    assert import_one(strict, mailbox, wanted).state is ImportState.STORED


@pytest.mark.parametrize(("declared", "sent"), [("image/png", PDF), ("application/pdf", JPEG)])
def test_inert_content_of_another_kind_is_kept_without_its_false_label(
    strict: Desk, mailbox: Mailbox, declared: str, sent: Sample
) -> None:
    url = strict.source.serve("/relabelled", content(sent.content, declared))
    stored = import_one(strict, mailbox, attachment(url, media_type=declared))
    assert stored.state is ImportState.STORED
    (file,) = strict.files_of(mailbox)
    assert file.media_type == "application/octet-stream"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:80/",
        "http://[::1]/",
        "http://10.0.0.1/",
        METADATA_SERVER,
        "http://localhost/",
        "https://[::ffff:169.254.169.254]/",
    ],
)
def test_private_addresses_are_never_requested(strict: Desk, mailbox: Mailbox, url: str) -> None:
    strict.fetcher = replace(strict.fetcher, policy=EgressPolicy(allow_http=True))
    failed = import_one(strict, mailbox, attachment(url))
    assert (failed.state, failed.code) == (ImportState.FAILED, "address_refused")
    require_nothing_left(strict, mailbox)


class OnlyTheSourceIsPublic(EgressPolicy):
    """An egress policy that treats the source's own address as public."""

    def is_allowed(self, address: str) -> bool:
        return address == "127.0.0.1" or is_public(address)


@pytest.mark.parametrize("inside", ["127.0.0.2", "[::1]", "10.0.0.1", "192.168.0.1", "[fd00::1]", "0.0.0.0"])
def test_a_redirect_inside_is_not_followed(strict: Desk, mailbox: Mailbox, inside: str) -> None:
    policy = OnlyTheSourceIsPublic(allow_private=True, allow_http=True)
    strict.fetcher = replace(strict.fetcher, policy=policy)
    port = strict.source.url.rpartition(":")[2]
    url = strict.source.serve("/hostile", redirect(f"http://{inside}:{port}/inside"))
    failed = import_one(strict, mailbox, attachment(url))
    assert (failed.state, failed.code) == (ImportState.FAILED, "address_refused")
    require_nothing_left(strict, mailbox)


def test_dns_rebinding_is_refused(strict: Desk, mailbox: Mailbox) -> None:
    answers = iter([("127.0.0.1",), ("169.254.169.254",)])
    policy = EgressPolicy(allow_private=True, allow_http=True, resolve=lambda *_: next(answers))
    strict.fetcher = replace(strict.fetcher, policy=policy)
    port = strict.source.url.rpartition(":")[2]
    strict.source.serve("/rebinding", redirect("/again"))
    failed = import_one(strict, mailbox, attachment(f"http://rebinding.example:{port}/rebinding"))
    assert (failed.state, failed.code) == (ImportState.FAILED, "address_refused")
    assert strict.source.count("/again") == 0
    require_nothing_left(strict, mailbox)


def import_one(desk: Desk, mailbox: Mailbox, wanted: Attachment) -> Import:
    (queued,) = desk.push(mailbox, wanted, headers={wanted.attachment_id: {"X-Secret": "hush"}})
    desk.work_until_idle()
    return desk.read(queued)


def require_nothing_left(desk: Desk, mailbox: Mailbox) -> None:
    desk.require_tidy()
    assert desk.files_of(mailbox) == []
    assert desk.sql("SELECT * FROM blobs") == []
    # What it takes to try again is kept, encrypted where it is secret, for as long as the record.
    (kept,) = desk.sql("SELECT headers_encrypted, forget_at FROM media_imports")
    assert b"hush" not in bytes(kept.headers_encrypted)
    assert kept.forget_at is not None
