"""Errors as pages: the dialect of the console."""

from collections.abc import Mapping, Sequence
from typing import Any

from web.framework.rendering import HTML, page_headers, render

_FIRST_OF_OURS = 500


def is_console_path(path: str) -> bool:
    """Tell whether an address is a page of the console."""
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
    """Write an error for people: what is wrong, the code that names it, and the request's number."""
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
    """Give the headers of such a page."""
    return {**page_headers(), "Cache-Control": "no-store"}


CONTENT_TYPE = f"{HTML}; charset=utf-8"
