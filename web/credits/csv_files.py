"""Responses as CSV files (RFC 4180) for spreadsheets.

A client gets CSV if the request's `Accept` prefers it.
"""

from collections.abc import Mapping

from flask import Response
from pydantic import BaseModel

from web.http.negotiation import CSV, JSON

# Both formats have the same URL, so `Vary` tells caches to store them separately.
VARIES = {"Vary": "Accept"}
# The headers of a CSV response, for the OpenAPI document.
FILE_HEADERS = {"Content-Disposition": "The name of the file, if the response is one."}


def json_or_file(shape: type[BaseModel]) -> Mapping[str, type[BaseModel] | None]:
    """Return the content of a response that is either JSON of a model or a CSV file."""
    return {JSON: shape, CSV: None}


def csv_file(name: str, table: str) -> Response:
    """Return a CSV table as a file with the given name."""
    headers = {**VARIES, "Content-Disposition": f'attachment; filename="{name}.csv"'}
    return Response(table, content_type=f"{CSV}; charset=utf-8", headers=headers)
