"""Shared links in pages: any page may embed and read a grant's content, and nothing in it is ever executed.

Specified in docs/specification/files.md#shared-links.
"""

from typing import Any

import pytest
from werkzeug.test import TestResponse

from tests.web.files.asking import refuse, succeed
from tests.web.files.conftest import Cast

READABLE = ("Accept-Ranges", "Content-Disposition", "Content-Length", "Content-Range", "ETag", "Repr-Digest")
SHOWN = (
    "image/png",
    "image/jpeg",
    "image/webp",
    "audio/mpeg",
    "video/mp4",
    "application/pdf",
    "text/plain; charset=utf-8",
)
NEVER_SHOWN = (
    "text/html",
    "TEXT/HTML; charset=utf-8",
    "image/svg+xml",
    "IMAGE/SVG+XML",
    "image/svg",
    "application/xhtml+xml",
    "text/xml",
    "text/javascript",
    "text/css",
    "text/markdown",
    "application/json",
    "application/zip",
    "application/octet-stream",
    "multipart/x-mixed-replace",
    "imagery/png",
)


def shared(cast: Cast, media_type: str = "image/png") -> tuple[Any, str]:
    file = succeed(cast.agent.upload(b"0123456789", file_name="shown", media_type=media_type), 201)
    return file, succeed(cast.agent.grant(file), 201)["url"]


def require_open_to_any_page(answer: TestResponse) -> None:
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert "Access-Control-Allow-Credentials" not in answer.headers
    assert answer.headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    exposed = {name.strip() for name in answer.headers["Access-Control-Expose-Headers"].split(",")}
    assert set(READABLE) <= exposed


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({}, 200),
        ({"Range": "bytes=1-2"}, 206),
        ({"Range": "bytes=0-1,4-5"}, 206),
        ({"Range": "bytes=99-"}, 416),
    ],
)
def test_a_link_is_open_to_any_page(cast: Cast, method: str, sent: dict[str, str], status: int) -> None:
    _, link = shared(cast)
    answer = cast.anonymous.follow(link, method=method, headers={"Origin": "https://page.example", **sent})
    assert answer.status_code == (status if method == "GET" else 200)
    require_open_to_any_page(answer)


def test_conditional_request_of_a_page_gets_304(cast: Cast) -> None:
    _, link = shared(cast)
    entity_tag = cast.anonymous.follow(link).headers["ETag"]
    answer = cast.anonymous.follow(link, headers={"If-None-Match": entity_tag})
    assert answer.status_code == 304
    require_open_to_any_page(answer)


def test_a_page_may_read_why_a_link_does_not_work(cast: Cast) -> None:
    file, link = shared(cast)
    succeed(cast.admin.delete(file))
    answer = cast.anonymous.follow(link)
    refuse(answer, 410, "grant_expired")
    require_open_to_any_page(answer)


def test_preflight_lists_the_allowed_headers(cast: Cast) -> None:
    _, link = shared(cast)
    asked = {
        "Origin": "https://page.example",
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": "range,if-none-match",
    }
    answer = cast.anonymous.follow(link, method="OPTIONS", headers=asked)
    assert (answer.status_code, answer.data) == (204, b"")
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert answer.headers["Access-Control-Allow-Methods"] == "GET, HEAD"
    allowed = {name.strip().lower() for name in answer.headers["Access-Control-Allow-Headers"].split(",")}
    assert {"range", "if-range", "if-none-match"} <= allowed
    assert "authorization" not in allowed


def test_without_a_grant_no_page_of_another_origin_gets_anything(cast: Cast) -> None:
    file, _ = shared(cast)
    answer = cast.agent.content(file, headers={"Origin": "https://page.example"})
    asked = cast.agent.content(file, method="OPTIONS", headers={"Origin": "https://page.example"})
    asked_by_nobody = cast.anonymous.content(file, method="OPTIONS")
    for each in (answer, asked, asked_by_nobody):
        assert [name for name, _ in each.headers if name.startswith("Access-Control-")] == []
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-site"
    assert answer.headers["Content-Disposition"].startswith("attachment")
    refuse(cast.agent.content(file, disposition="inline"), 422, "validation_failed")
    assert asked_by_nobody.status_code == 204  # a browser sends no credentials before it knows that it may


@pytest.mark.parametrize("media_type", SHOWN)
def test_passive_content_is_shown_inline_on_request(cast: Cast, media_type: str) -> None:
    _, link = shared(cast, media_type)
    answer = cast.anonymous.follow(f"{link}&disposition=inline")
    assert (answer.status_code, answer.data) == (200, b"0123456789")
    assert answer.headers["Content-Type"] == media_type
    assert answer.headers["Content-Disposition"].startswith('inline; filename="shown"')
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    policy = {part.strip() for part in answer.headers["Content-Security-Policy"].split(";")}
    assert {"sandbox", "default-src 'none'", "frame-ancestors *"} <= policy
    for plain in (link, f"{link}&disposition=attachment"):
        kept = cast.anonymous.follow(plain)
        assert kept.headers["Content-Disposition"].startswith("attachment")
        assert "frame-ancestors 'none'" in kept.headers["Content-Security-Policy"]


@pytest.mark.parametrize("media_type", NEVER_SHOWN)
def test_everything_else_stays_an_attachment(cast: Cast, media_type: str) -> None:
    _, link = shared(cast, media_type)
    answer = cast.anonymous.follow(f"{link}&disposition=inline")
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]


def test_another_disposition_is_refused(cast: Cast) -> None:
    _, link = shared(cast)
    refuse(cast.anonymous.follow(f"{link}&disposition=form-data"), 422, "validation_failed")
