"""Lines of the log: one that cannot be written fails nothing, and none repeats what could not be parsed."""

import io
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from shared.telemetry import LOST_LOG_LINES, JsonFormatter, LineHandler, MalformedRequestFilter

LOG_AND_GO_ON = (
    "from shared.telemetry import configure_logging, get_logger, LOST_LOG_LINES;"
    "configure_logging('INFO'); log = get_logger('x');"
    "[log.info('file.stored', text='x' * 1000) for _ in range(100)];"
    "import os; open(os.environ['RESULT'], 'w').write(str(LOST_LOG_LINES._value.get())); os._exit(0)"
)


def test_lines_that_a_full_disk_does_not_take_are_counted_and_fail_nothing(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(
            [sys.executable, "-c", LOG_AND_GO_ON],
            stdout=full,
            stderr=subprocess.PIPE,
            env={"RESULT": str(tmp_path / "result")},
            check=False,
        )
    assert (run.returncode, run.stderr) == (0, b"")
    assert float((tmp_path / "result").read_text()) == 100.0


def test_lines_that_nobody_reads_any_more_fail_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LOG_AND_GO_ON],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"RESULT": str(tmp_path / "result")},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0
    assert float((tmp_path / "result").read_text()) > 0


class Unspeakable:
    """Cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def test_a_field_that_cannot_be_rendered_fails_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    handler = LineHandler()
    handler.setFormatter(JsonFormatter())
    record = logging.makeLogRecord({"msg": "file.stored", "fields": {"x": Unspeakable()}})
    before = LOST_LOG_LINES._value.get()
    handler.handle(record)
    assert LOST_LOG_LINES._value.get() == before + 1
    assert capsys.readouterr().err == ""


def test_nothing_is_quoted_of_a_request_that_cannot_be_parsed() -> None:
    stream = io.StringIO()
    handler = LineHandler()
    handler.setStream(stream)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(MalformedRequestFilter())
    text = "Invalid request from ip=192.0.2.7: Invalid HTTP Header: 'Authorization : Basic secret'"
    handler.handle(logging.makeLogRecord({"msg": text, "name": "gunicorn.error"}))
    line = json.loads(stream.getvalue())
    assert (line["event"], line["client_address"]) == ("request.malformed", "192.0.2.7")
    assert "secret" not in stream.getvalue()
