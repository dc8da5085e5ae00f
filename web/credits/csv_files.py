"""Responses as CSV files (RFC 4180) for spreadsheets, if the request's `Accept` prefers them."""

from collections.abc import Mapping

from flask import Response
from pydantic import BaseModel

from web.http.negotiation import CSV, JSON

# Both formats have one URL, so that caches must keep them apart.
VARIES = {"Vary": "Accept"}
# Headers of these responses, for the OpenAPI document.
FILE_HEADERS = {"Content-Disposition": "The name of the file, if the response is one."}


def json_or_file(shape: type[BaseModel]) -> Mapping[str, type[BaseModel] | None]:
    """Return the content of a response that is JSON of a model, or a CSV file."""
    return {JSON: shape, CSV: None}


def csv_file(name: str, table: str) -> Response:
    """Return a table as a file of this name."""
    headers = {**VARIES, "Content-Disposition": f'attachment; filename="{name}.csv"'}
    return Response(table, content_type=f"{CSV}; charset=utf-8", headers=headers)
