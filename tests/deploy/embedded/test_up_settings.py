"""The defaults of `make up`, the rate of its readiness checks, and failures of its output."""

import contextlib
import errno
import io
import socket
from pathlib import Path

from deploy.embedded import up
from deploy.embedded.home import Home
from deploy.embedded.ports import find_free_port, is_free
from deploy.supervision.supervisor import Supervisor


def a_port_with_a_free_one_above() -> int:
    while not is_free((port := find_free_port()) + 1000):
        pass
    return port


def test_operators_get_a_port_a_thousand_above_the_fronts() -> None:
    port = a_port_with_a_free_one_above()
    assert up._operations_port({}, up.Address(host="127.0.0.1", port=port)) == str(port + 1000)


def test_operations_port_falls_back_to_a_free_one_or_operations_bind() -> None:
    address = up.Address(host="127.0.0.1", port=a_port_with_a_free_one_above())
    with socket.create_server(("127.0.0.1", address.port + 1000)):
        chosen = int(up._operations_port({}, address))
        assert chosen != address.port + 1000
        assert is_free(chosen)
    assert up._operations_port({"OPERATIONS_BIND": "0.0.0.0:9080"}, address) == ""


def test_each_process_listens_for_operators_on_a_port_of_its_own() -> None:
    environment = {"OPERATIONS_PORT": "9080", "PORT": "8080", "METRICS_DIRECTORY": "/dev/shm/metrics"}
    programs = up._programs(Path(up.ROOT), environment)
    assert programs["web"].environment == environment
    assert "OPERATIONS_PORT" not in (programs.pop("release").environment or {})
    ports = [(program.environment or {})["OPERATIONS_PORT"] for program in programs.values()]
    assert len(set(ports)) == len(ports) == 8
    assert all(dict(program.environment or {}).items() >= {("PORT", "8080")} for program in programs.values())


def test_nobody_listens_beside_a_front_that_is_told_where() -> None:
    environment = {"OPERATIONS_PORT": "", "OPERATIONS_BIND": "0.0.0.0:9080", "PORT": "8080"}
    programs = up._programs(Path(up.ROOT), environment)
    assert programs.pop("web").environment == environment
    assert all(program.environment == {"PORT": "8080"} for program in programs.values())


def test_the_ports_of_workers_are_free_ones() -> None:
    first = find_free_port()
    with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", first + 1)):
        chosen = up._ports_above(str(first), 3)
        assert str(first + 1) not in chosen
        assert len(set(chosen)) == 3


def test_readiness_check_is_throttled() -> None:
    answers = iter([False])  # a second request would get no response
    question = up._Throttled(lambda: next(answers), seconds=60)
    for _ in range(100):
        assert not question()


class FullDisk(io.StringIO):
    """A stream that fails to write while its disk is full."""

    is_full = False

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, "no space")
        return super().write(text)


def test_lines_are_shown_again_once_the_disk_of_the_output_has_space() -> None:
    output = FullDisk()
    supervisor = Supervisor(output=output)
    for is_full, line in ((False, "before"), (True, "lost"), (False, "after")):
        output.is_full = is_full
        supervisor.print_line(line)
    assert output.getvalue() == "before\nafter\n"


def test_metrics_are_kept_in_memory_and_forgotten_at_the_end(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.claim()
    directory = home.make_metrics_directory()
    assert directory.parent in (Path("/dev/shm"), home.directory)
    assert directory.stat().st_mode & 0o777 == 0o700
    home.remove_metrics_directory()
    assert not directory.exists()
