"""Log lines contain no text of a request that could not be parsed."""

import json
import logging

from shared.observability.telemetry import JsonFormatter, MalformedRequestFilter


def test_nothing_is_quoted_of_a_request_that_cannot_be_parsed() -> None:
    text = "Invalid request from ip=192.0.2.7: Invalid HTTP Header: 'Authorization : Basic secret'"
    record = logging.makeLogRecord({"msg": text, "name": "gunicorn.error"})
    assert MalformedRequestFilter().filter(record)
    written = JsonFormatter().format(record)
    line = json.loads(written)
    assert (line["event"], line["client_address"]) == ("request.malformed", "192.0.2.7")
    assert "secret" not in written
