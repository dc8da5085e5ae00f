"""Lines of the log: written soon, together and in order; one that cannot be written fails nothing."""

import io
import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.observability.telemetry import LOST_LOG_LINES, JsonFormatter
from shared.runtime.log_writer import FLUSH_SECONDS, MAX_BUFFERED_LINES, LineHandler
from tests.support.processes.stack import wait_until

LOG_AND_GO_ON = (
    "from shared.runtime.log_writer import configure_logging; "
    "from shared.observability.telemetry import get_logger, LOST_LOG_LINES;"
    "configure_logging('INFO'); log = get_logger('x');"
    "[log.info('file.stored', text='x' * 1000) for _ in range(100)];"
    "import logging, os; logging.getLogger().handlers[0].flush();"
    "open(os.environ['RESULT'], 'w').write(str(LOST_LOG_LINES._value.get())); os._exit(0)"
)
LOG_AND = (
    "from shared.runtime.log_writer import configure_logging; from shared.observability.telemetry import get_logger;"
    "configure_logging('INFO'); log = get_logger('x'); import os, sys, time;"
)


class Written(io.StringIO):
    """Standard output that knows how often it was written to."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    def write(self, text: str) -> int:
        self.pieces.append(text)
        return len(text)

    @property
    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in "".join(self.pieces).splitlines()]


@pytest.fixture
def written() -> Written:
    return Written()


@pytest.fixture
def log(written: Written) -> Iterator[logging.Logger]:
    handler = LineHandler()
    handler.setStream(written)
    handler.setFormatter(JsonFormatter())
    logger = logging.Logger("alone")  # noqa: LOG001 (one that no other test has)
    logger.addHandler(handler)
    yield logger
    handler.close()


def run(code: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env=environment,
        check=False,
        timeout=60,
    )


def events(output: bytes) -> list[str]:
    return [json.loads(line)["event"] for line in output.splitlines()]


def test_lines_are_written_soon_and_many_at_a_time(log: logging.Logger, written: Written) -> None:
    for number in range(MAX_BUFFERED_LINES // 2):
        log.info("event.%d", number)
    wait_until(lambda: len(written.events) == MAX_BUFFERED_LINES // 2, "all lines are written")
    assert written.events == [f"event.{number}" for number in range(MAX_BUFFERED_LINES // 2)]
    assert len(written.pieces) < MAX_BUFFERED_LINES // 10


def test_a_warning_is_written_at_once_after_the_lines_before_it(
    log: logging.Logger, written: Written
) -> None:
    log.info("first")
    log.info("second")
    log.warning("third")
    assert written.events == ["first", "second", "third"]


def test_more_lines_than_are_kept_wait_for_the_output(log: logging.Logger, written: Written) -> None:
    for number in range(3 * MAX_BUFFERED_LINES):
        log.info("event.%d", number)
    assert len(written.events) > MAX_BUFFERED_LINES
    wait_until(lambda: len(written.events) == 3 * MAX_BUFFERED_LINES, "the rest is written")


def test_buffered_lines_are_written_at_process_end() -> None:
    assert events(run(LOG_AND + "log.info('started'); log.info('ended'); sys.exit(3)").stdout) == [
        "started",
        "ended",
    ]


def test_a_forked_process_writes_its_own_lines_and_none_of_its_parents() -> None:
    forked = run(
        LOG_AND
        + "log.info('parent.first'); log.info('parent.second'); pid = os.fork();"
        + "log.info('child.told' if pid == 0 else 'parent.told');"
        + "pid and os.waitpid(pid, 0)"
    )
    assert sorted(events(forked.stdout)) == ["child.told", "parent.first", "parent.second", "parent.told"]


def test_forks_while_lines_are_written_leave_children_that_can_log() -> None:
    forked = run(
        LOG_AND
        + """
for number in range(200):
    log.info('parent.told')
    time.sleep(0.0001 * (number % 5))
    if os.fork() == 0:
        log.info('child.told')
        log.warning('child.told')
        os._exit(0)
for _ in range(200):
    os.wait()
"""
    )
    assert sorted(events(forked.stdout)) == ["child.told"] * 400 + ["parent.told"] * 200


def test_a_handler_that_is_closed_writes_each_line_at_once(log: logging.Logger, written: Written) -> None:
    log.info("kept")
    log.handlers[0].close()
    log.info("late")
    assert written.events == ["kept", "late"]


def test_a_killed_process_loses_the_lines_of_a_moment_at_the_most(tmp_path: Path) -> None:
    code = (
        LOG_AND
        + f"log.info('early'); time.sleep({20 * FLUSH_SECONDS}); print('-', file=sys.stderr); time.sleep(60)"
    )
    output = tmp_path / "output"
    with (
        output.open("wb") as stdout,
        subprocess.Popen([sys.executable, "-c", code], stdout=stdout, stderr=subprocess.PIPE) as process,
    ):
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGKILL)
    assert events(output.read_bytes()) == ["early"]


def test_lines_lost_to_a_full_disk_are_counted_without_failing(tmp_path: Path) -> None:
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


def test_a_field_that_cannot_be_rendered_fails_nothing(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    before = LOST_LOG_LINES._value.get()
    log.info("file.stored", extra={"fields": {"x": Unspeakable()}})
    assert LOST_LOG_LINES._value.get() == before + 1
    assert capsys.readouterr().err == ""
