"""Yardsticks that cannot be installed are reported in one line each."""

from pathlib import Path

import pytest

from tests.benchmarks.peers.servers import install

PIP = """#!/bin/sh
echo "WARNING: Location 'file:///index/' is ignored" >&2
echo "ERROR: No matching distribution found for $5" >&2
echo "WARNING: a newer pip is there" >&2
exit 1
"""


def _make_environment(path: Path, pip: str) -> Path:
    python = path / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(pip)
    python.chmod(0o755)
    return path


def test_package_that_cannot_be_installed_is_reported_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    environment = _make_environment(tmp_path / "peer", PIP)
    assert install(environment, "peer==1", "peer", seconds=60) is None
    told = "yardstick missing: peer==1: ERROR: No matching distribution found for peer==1\n"
    assert capfd.readouterr() == ("", told)


def test_silent_package_index_is_reported_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    environment = _make_environment(tmp_path / "peer", "#!/bin/sh\nexec sleep 60\n")
    assert install(environment, "peer==1", "peer", seconds=0.1) is None
    told = capfd.readouterr().err
    assert told.startswith("yardstick missing: peer==1: ")
    assert told.count("\n") == 1


def test_installed_program_is_not_installed_again(tmp_path: Path) -> None:
    environment = _make_environment(tmp_path / "peer", "#!/bin/sh\nexit 1\n")
    (environment / "bin" / "peer").touch()
    assert install(environment, "peer==1", "peer", seconds=60) == environment / "bin" / "peer"
