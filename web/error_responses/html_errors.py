"""Errors as pages, for the console."""

from collections.abc import Mapping, Sequence
from typing import Any

from web.framework.rendering import HTML, page_headers, render

_FIRST_OF_OURS = 500


def is_console_path(path: str) -> bool:
    """Return whether a path belongs to the console."""
    return path == "/console" or path.startswith("/console/")


def error_page(
    status: int,
    code: str,
    title: str,
    detail: str,
    *,
    request_id: str,
    errors: Sequence[Mapping[str, str]] = (),
) -> str:
    """Render an error as a page. The page shows what is wrong, the error's code, and the request's id."""
    return render(
        "error.html",
        status=status,
        code=code,
        title=title,
        detail=detail,
        errors=errors,
        request_id=request_id,
        is_ours=status >= _FIRST_OF_OURS,
    )


def error_headers() -> dict[str, Any]:
    """Return the headers of an error page."""
    return {**page_headers(), "Cache-Control": "no-store"}


CONTENT_TYPE = f"{HTML}; charset=utf-8"
