"""Answers that are files for spreadsheets (RFC 4180), to those whose `Accept` asks for one."""

from collections.abc import Mapping

from flask import Response
from pydantic import BaseModel

from web.http.negotiation import CSV, JSON

VARIES = {"Vary": "Accept"}
FILE_HEADERS = {"Content-Disposition": "The name of the file, where the answer is one."}
"""The headers of such answers, for readers of the API."""


def json_or_file(shape: type[BaseModel]) -> Mapping[str, type[BaseModel] | None]:
    """Describe an answer that is JSON of a shape, or a file."""
    return {JSON: shape, CSV: None}


def csv_file(name: str, table: str) -> Response:
    """Answer with a table as a file of this name."""
    headers = {**VARIES, "Content-Disposition": f'attachment; filename="{name}.csv"'}
    return Response(table, content_type=f"{CSV}; charset=utf-8", headers=headers)
