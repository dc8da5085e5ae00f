"""Answers that are files for spreadsheets (RFC 4180), to those whose `Accept` asks for one."""

from flask import Response

from web.http.negotiation import CSV

VARIES = {"Vary": "Accept"}


def csv_file(name: str, table: str) -> Response:
    """Answer with a table as a file of this name."""
    headers = {**VARIES, "Content-Disposition": f'attachment; filename="{name}.csv"'}
    return Response(table, content_type=f"{CSV}; charset=utf-8", headers=headers)
