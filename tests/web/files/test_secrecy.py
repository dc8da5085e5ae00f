"""A read grant is a secret: it is in the response that creates it, and nowhere else.

Specified in docs/specification/files.md#grants.
"""

import io
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from prometheus_client import generate_latest
from sqlalchemy import text
from werkzeug.test import EnvironBuilder
from werkzeug.wsgi import ClosingIterator

from shared.files.lifecycle.garbage_collection import collect_garbage
from shared.files.lifecycle.placement import place_staged
from tests.support.files.file_requests import expire, refuse, succeed
from tests.support.web.web_process import Front
from tests.web.files.conftest import Cast


@pytest.fixture
def everything_logged() -> Iterator[io.StringIO]:
    """Return all records of all loggers at all levels, unredacted, with all fields."""
    written = io.StringIO()

    class Everything(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.write(repr(record.__dict__) + "\n")

    handler, root = Everything(logging.NOTSET), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield written
    root.setLevel(level)
    root.removeHandler(handler)


def test_a_grant_is_in_no_log_problem_metric_or_column(
    cast: Cast, front: Front, everything_logged: io.StringIO
) -> None:
    file = succeed(cast.agent.upload(b"shared"), 201)
    other = succeed(cast.agent.upload(b"other"), 201)
    link = succeed(cast.agent.grant(file), 201)["url"]
    parts = urlsplit(link)
    token = parse_qs(parts.query)["grant"][0]
    outputs: list[str] = []

    def keep(answer: Any) -> Any:
        outputs.extend([answer.text, str(answer.headers)])
        return answer

    keep(cast.anonymous.follow(link))
    keep(cast.anonymous.follow(link, method="HEAD"))
    keep(cast.anonymous.follow(link, headers={"Referer": link, "Range": "bytes=9-"}))
    keep(cast.agent.ask("GET", f"{parts.path}?{parts.query}"))
    refuse(keep(cast.anonymous.follow(f"{link}&x={token}")), 400, "unknown_parameter")
    refuse(keep(cast.anonymous.follow(f"{link}&grant={token}")), 400, "duplicate_parameter")
    refuse(keep(cast.anonymous.follow(f"/files/{other['id']}/content?grant={token}")), 404, "grant_not_found")
    refuse(keep(cast.anonymous.follow(f"{parts.path}?%67rant={quote(token)}x")), 404, "grant_not_found")
    refuse(keep(cast.anonymous.follow(f"/files/x/content?grant={token}")), 404, "not_found")
    refuse(keep(cast.agent.ask("GET", f"/files?grant={token}")), 400, "unknown_parameter")
    refuse(
        keep(cast.anonymous.ask("GET", "/files", headers={"Referer": link})), 401, "authentication_required"
    )
    refuse(
        keep(cast.anonymous.ask("GET", "/files", headers={"Authorization": f"Bearer {token}"})),
        401,
        "invalid_token",
    )
    refuse(keep(cast.anonymous.ask("BREW", f"{parts.path}?{parts.query}")), 405, "method_not_allowed")
    place_staged(front.services.database, front.services.blobs)
    expire(front, file)
    refuse(keep(cast.anonymous.follow(link)), 410, "grant_expired")
    succeed(cast.admin.delete(other))
    collect_garbage(front.services.database, front.services.blobs)
    keep(front.get("/metrics"))

    logged = everything_logged.getvalue()
    assert logged.count("request.answered") >= 10
    for secret in (token, token.removeprefix("svg_"), token[4:40]):
        assert secret not in logged
        assert secret not in generate_latest().decode()
        assert secret not in "".join(outputs)
        assert secret not in everything_stored(front)


def test_a_failure_while_a_link_is_followed_does_not_write_it_down(
    cast: Cast, front: Front, everything_logged: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = succeed(cast.agent.upload(b"shared"), 201)
    link = succeed(cast.agent.grant(file), 201)["url"]

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(front.services.blobs, "open", fail)
    answer = cast.anonymous.follow(link)
    refuse(answer, 500, "internal_error")
    token = parse_qs(urlsplit(link).query)["grant"][0]
    assert "request.failed" in everything_logged.getvalue()
    assert token not in everything_logged.getvalue() + answer.text


def test_nothing_behind_the_edge_sees_the_grant_in_the_address(cast: Cast, front: Front) -> None:
    """Anything else around the application (an access log, a tracer) reads these variables of the environ."""
    file = succeed(cast.agent.upload(b"shared"), 201)
    link = urlsplit(succeed(cast.agent.grant(file), 201)["url"])
    address = f"{link.path}?versionId={file['versionId']}&{link.query}&x"
    builder = EnvironBuilder(
        path=link.path,
        query_string=address.partition("?")[2],
        environ_overrides={"RAW_URI": address, "REQUEST_URI": address, "HTTP_REFERER": address},
    )
    environ = builder.get_environ()
    ClosingIterator(front.app.wsgi_app(environ, lambda *_: lambda _: None)).close()
    assert environ["QUERY_STRING"] == f"versionId={file['versionId']}&x"
    assert environ["RAW_URI"] == environ["REQUEST_URI"] == link.path
    shown = {name: value for name, value in environ.items() if isinstance(value, str)}
    assert "svg_" not in str(shown)


def everything_stored(front: Front) -> str:
    """Return all columns of all tables as text, and all names in the blob store."""
    with front.services.database.autocommit() as session:
        tables = session.execute(
            text("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
        ).scalars()
        rows = [
            str(row)
            for table in tables
            for row in session.execute(text(f'SELECT "{table}"::text FROM "{table}"')).scalars()
        ]
    root = Path(urlsplit(front.settings.blob_store).path)
    return "\n".join([*rows, *(str(path) for path in root.rglob("*"))])
