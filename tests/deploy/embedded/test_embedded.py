"""The embedded servers: data survives crashes, installations are isolated, stale processes do not block a start."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import psycopg2
import pytest
import redis
from sqlalchemy import create_engine

from deploy.embedded.postgres import APPLICATION_ROLE, SUPERUSER, EmbeddedPostgres
from deploy.embedded.valkey import EmbeddedValkey
from shared.messaging.valkey import writes_to_disk
from shared.migrations.grants import grant_access
from shared.migrations.runner import migrate
from tests.support.processes.collected_cases import found


def run(url: str, statement: str) -> list[tuple[object, ...]]:
    connection = psycopg2.connect(url)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


def processes_over(directory: Path) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(directory) in word for word in process.info["cmdline"] or ())
    ]


def test_postgres_keeps_what_was_committed_when_it_is_killed(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres")
    server.start()
    try:
        server.create_database("kept")
        url = server.migrations_url("kept")
        run(url, "CREATE TABLE facts AS SELECT 42 AS fact")
        server.kill()
        server.start()
        assert run(url, "SELECT fact FROM facts") == [(42,)]
        assert run(url, "SHOW fsync") == [("on",)]
    finally:
        server.stop()
    assert not processes_over(tmp_path)


def test_postgres_starts_over_the_leftover_of_an_earlier_run(tmp_path: Path) -> None:
    leftover, successor = EmbeddedPostgres(tmp_path / "postgres"), EmbeddedPostgres(tmp_path / "postgres")
    leftover.start()
    successor.start()
    try:
        assert len([process for process in processes_over(tmp_path) if process.ppid() == os.getpid()]) == 1
    finally:
        successor.stop()
        leftover.stop()


def test_pid_file_of_an_unrelated_process_does_not_block_postgres(
    tmp_path: Path,
) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres", durable=False)
    server.start()
    server.stop()
    stale = tmp_path / "postgres" / "data" / "postmaster.pid"
    # A process that exists, but is no Postgres, as after a reboot that reused the id.
    stale.write_text(f"{os.getppid()}\n{stale.parent}\n")
    server.start()
    server.stop()


def test_an_interrupted_creation_of_the_data_is_begun_anew(tmp_path: Path) -> None:
    half_made = tmp_path / "postgres" / "data.initializing"
    half_made.mkdir(parents=True)
    (half_made / "PG_VERSION").write_text("18\n")
    server = EmbeddedPostgres(tmp_path / "postgres", durable=False)
    server.start()
    try:
        assert run(server.url, "SELECT 1") == [(1,)]
    finally:
        server.stop()


def test_postgres_copes_with_a_home_too_deep_for_a_socket(tmp_path: Path) -> None:
    # The path of a unix socket has at most 107 bytes.
    server = EmbeddedPostgres(tmp_path / ("deep" * 20) / ("deeper" * 20), durable=False)
    server.start()
    try:
        assert run(server.url, "SELECT 1") == [(1,)]
    finally:
        server.stop()


def test_databases_are_copied_and_dropped(postgres_server: EmbeddedPostgres) -> None:
    postgres_server.create_database("pattern")
    run(postgres_server.migrations_url("pattern"), "CREATE TABLE facts AS SELECT 42 AS fact")
    postgres_server.create_database("copy_of_pattern", template="pattern")
    assert run(postgres_server.migrations_url("copy_of_pattern"), "SELECT fact FROM facts") == [(42,)]
    for name in ("copy_of_pattern", "pattern", "never_made"):
        postgres_server.drop_database(name)
    names = run(postgres_server.url, "SELECT datname FROM pg_database WHERE datname LIKE '%pattern'")
    assert names == []


def test_the_services_role_has_rows_and_nothing_else(
    postgres_server: EmbeddedPostgres, migrated_template: str
) -> None:
    url = postgres_server.create_database("least", template=migrated_template)
    role = "SELECT rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls FROM pg_roles WHERE rolname = "
    for name in ("quartermaster_app", "quartermaster_migrations"):
        assert run(url, f"{role}'{name}'") == [(False,) * 5]
    owned = "SELECT count(*) FROM pg_class WHERE relowner = 'quartermaster_app'::regrole"
    assert run(url, owned) == [(0,)]
    assert run(url, "SELECT count(*) FROM organizations") == [(0,)]
    for refused in (
        "CREATE TABLE mine (id int)",
        "DROP TABLE organizations",
        "ALTER TABLE organizations ADD COLUMN more int",
        "TRUNCATE audit_events",
        "UPDATE alembic_version SET version_num = '0001'",
        "CREATE DATABASE more",
        "CREATE ROLE more",
        "SELECT pg_read_file('/etc/passwd')",
        "COPY organizations TO '/tmp/organizations'",
        "COPY organizations FROM PROGRAM 'true'",
        "SET ROLE quartermaster_migrations",
        "ALTER TABLE audit_events DISABLE TRIGGER ALL",
    ):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            run_alone(url, refused)


def test_an_installation_whose_superuser_owned_all_is_given_roles(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres", durable=False)
    server.start()
    try:
        superuser = server.database_url("quartermaster", role=SUPERUSER)
        run_alone(server.url, "CREATE DATABASE quartermaster")
        migrate_as(superuser)
        run(superuser, "INSERT INTO organizations (id, name) VALUES (gen_random_uuid(), 'Kept')")
        url = server.create_database("quartermaster")
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            run(url, "SELECT name FROM organizations")
        migrate_as(server.migrations_url("quartermaster"))
        assert run(url, "SELECT name FROM organizations") == [("Kept",)]
        of_the_superuser = """
            SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relowner = 10
            UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND proowner = 10"""
        assert run(url, of_the_superuser) == []
        assert server.create_database("quartermaster") == url
    finally:
        server.stop()


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes the account of its programs")


@as_root
def test_postgres_has_no_capability_where_its_files_are_open_to_it(open_directory: Path) -> None:
    server = EmbeddedPostgres(open_directory / "postgres", durable=False)
    if server.program().reach_all_paths:
        pytest.skip("the installed packages lie in a closed directory")
    server.start()
    try:
        for status in found(filter(None, map(status_of, server_processes(server)))):
            assert {status[name] for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb", "CapInh")} == {0}
            assert status["NoNewPrivs"] == 1
    finally:
        server.stop()


@as_root
def test_postgres_in_a_closed_directory_reads_only_its_own_files(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    secret = closed / "secret"
    secret.write_text("root's own")
    secret.chmod(0o600)
    server = EmbeddedPostgres(closed / "postgres", durable=False)
    assert server.program().reach_all_paths
    server.start()
    try:
        for status in found(filter(None, map(status_of, server_processes(server)))):
            held = status["CapEff"] | status["CapPrm"] | status["CapAmb"]
            # CAP_DAC_READ_SEARCH or CAP_DAC_OVERRIDE.
            assert held in (1 << 2, 1 << 1), "to search and read, or what a container grants in its place"
            assert status["CapBnd"] & ~0b110 == 0
            assert status["NoNewPrivs"] == 1
        for path in (secret, Path("/etc/shadow"), Path("/proc/1/environ")):
            with pytest.raises(psycopg2.Error, match="Permission denied"):
                run(server.url, f"SELECT pg_read_file('{path}')")
        with pytest.raises(psycopg2.Error, match="Permission denied"):
            run_alone(server.url, f"COPY (SELECT 1) TO '{closed / 'written'}'")
    finally:
        server.stop()


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """Return a directory that every account can traverse; the `tmp_path` of a test is closed to others."""
    with TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def server_processes(server: EmbeddedPostgres) -> list[psutil.Process]:
    postmaster = psutil.Process(int((server.directory / "data" / "postmaster.pid").read_text().split()[0]))
    return [postmaster, *postmaster.children()]


def status_of(process: psutil.Process) -> dict[str, int]:
    """Return a process's capability masks; empty for a backend that has ended meanwhile."""
    try:
        text = Path(f"/proc/{process.pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    lines = (line.split(":") for line in text.splitlines())
    return {name: int(value, 16) for name, value in lines if name.startswith("Cap") or name == "NoNewPrivs"}


def run_alone(url: str, statement: str) -> None:
    connection = psycopg2.connect(url)
    connection.autocommit = True
    with closing(connection), connection.cursor() as cursor:
        cursor.execute(statement)


def migrate_as(url: str) -> None:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg2://", 1))
    migrate(engine)
    grant_access(
        engine, APPLICATION_ROLE if url.startswith("postgresql://quartermaster_migrations") else SUPERUSER
    )
    engine.dispose()


def test_valkey_keeps_messages_and_port_over_a_restart(
    tmp_path: Path,
) -> None:
    server = EmbeddedValkey(tmp_path)
    server.start()
    try:
        with redis.Redis.from_url(server.url) as client:
            client.set("word", "kept")
        url = server.url
        server.stop()
        server.start()
        with redis.Redis.from_url(url) as client:
            assert client.get("word") == b"kept"
        server.kill()
        server.start(discards_data=True)
        with redis.Redis.from_url(url) as client:
            assert client.get("word") is None
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    finally:
        server.stop()
    assert not processes_over(tmp_path)


def test_a_valkey_that_keeps_nothing_writes_nothing_down(tmp_path: Path) -> None:
    server = EmbeddedValkey(tmp_path, is_persistent=False)
    server.start()
    try:
        with redis.Redis.from_url(server.url) as client:
            client.set("word", "a canary")
            assert not writes_to_disk(client)
        server.stop()
        server.start()
        with redis.Redis.from_url(server.url) as client:
            assert client.get("word") is None
    finally:
        server.stop()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if b"a canary" in path.read_bytes()] == []


def test_a_valkey_that_keeps_its_messages_says_so(valkey_server: EmbeddedValkey) -> None:
    with redis.Redis.from_url(valkey_server.url) as client:
        assert writes_to_disk(client)


def test_valkey_moves_to_another_port_when_its_own_was_taken(tmp_path: Path) -> None:
    with socket.socket() as occupant:
        occupant.bind(("127.0.0.1", 0))
        occupant.listen()
        (tmp_path / "port").write_text(str(occupant.getsockname()[1]))
        server = EmbeddedValkey(tmp_path)
        server.ensure_port()
        server.start()
        server.stop()
        assert int((tmp_path / "port").read_text()) != occupant.getsockname()[1]


def test_a_leftover_valkey_is_ended_before_the_next(tmp_path: Path) -> None:
    leftover, successor = EmbeddedValkey(tmp_path), EmbeddedValkey(tmp_path)
    leftover.start()
    successor.ensure_port()
    successor.start()
    try:
        assert successor.url == leftover.url
        assert (
            len([process for process in processes_over(tmp_path) if process.status() != psutil.STATUS_ZOMBIE])
            == 1
        )
    finally:
        successor.stop()
        leftover.stop()


def test_two_copies_side_by_side_do_not_meet(tmp_path: Path) -> None:
    first, second = (EmbeddedValkey(tmp_path / name) for name in ("first", "second"))
    first.start()
    second.start()
    try:
        with redis.Redis.from_url(first.url) as one, redis.Redis.from_url(second.url) as other:
            one.set("word", "mine")
            assert other.get("word") is None
    finally:
        first.stop()
        second.stop()


def test_a_stranger_without_the_password_is_refused(valkey_server: EmbeddedValkey) -> None:
    address = valkey_server.url.rpartition("@")[2]
    with (
        redis.Redis.from_url(f"redis://{address}") as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.ping()


def test_signals_meant_for_the_terminal_do_not_reach_the_servers(postgres_server: EmbeddedPostgres) -> None:
    postmaster = int((postgres_server.directory / "data" / "postmaster.pid").read_text().split()[0])
    assert os.getsid(postmaster) != os.getsid(0)
