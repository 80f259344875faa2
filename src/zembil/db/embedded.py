"""A PostgreSQL of our own, so that nothing has to be installed before the first payment.

It runs as our child, listens on a private socket only, and ends when we end, even by kill -9. What is committed stays.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import quote

from zembil.db.data_directory import DataDirectory, find_data_directory, make_data_directory
from zembil.db.postgres_binaries import PostgresBinaries, find_binaries, last_lines, spawn_server
from zembil.errors import DatabaseError

USER = DATABASE = "zembil"
_SETTINGS = {
    "max_connections": "100",
    "shared_buffers": "128MB",
    "wal_compression": "on",
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "jit": "off",  # statements here are short; compiling them costs more than it saves
    "idle_in_transaction_session_timeout": "30s",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "cluster_name": "zembil",
}
_POLL_SECONDS = 0.01
_STALLED_SECONDS = 120  # without a line in the log; during a long recovery PostgreSQL writes one every ten seconds
_SAID_BYTES_MAX = 20_000
_ORPHAN_SECONDS = 60
_ORPHAN_NOTICES_SECONDS = 5
_STOP_SECONDS = ((signal.SIGINT, 60), (signal.SIGQUIT, 10), (signal.SIGKILL, 10))  # fast, immediate, the end


class EmbeddedPostgres:
    """A running PostgreSQL. Use it as a context manager or call stop()."""

    url: str
    """For asyncpg, psql and psycopg: the database and the superuser `zembil` on the private socket."""
    version: str
    bin: Path
    """The folder of its programs: psql, pgbench and so on."""
    process: subprocess.Popen[bytes]

    def __init__(
        self, binaries: PostgresBinaries, socket: Path, process: subprocess.Popen[bytes], resources: ExitStack
    ) -> None:
        self.url = f"postgresql://{USER}@/{DATABASE}?host={quote(str(socket))}&port=5432"
        self.version = binaries.version
        self.bin = binaries.bin
        self.process = process
        self._resources = resources

    @classmethod
    def start(cls, data: Path, *, settings: Mapping[str, str] | None = None) -> Self:
        """Start on the data directory `data`, which must be new, empty or made by an earlier start; waits until ready.

        `settings` are server parameters that override ours. Call it from the main thread if you can: then Linux ends
        PostgreSQL at our death; from another thread a small watching process does, as it does on macOS.
        """
        with ExitStack() as resources:
            try:
                directory = make_data_directory(data)
                resources.callback(os.close, directory.lock())
                binaries = find_binaries(directory.account, directory.copies)
                orphan = _wait_for_orphan(directory)
                if not directory.cluster.exists():
                    _create_cluster(directory, binaries)
                _check_version(directory, binaries)
                socket = directory.socket_directory()
                resources.callback(_remove_empty, socket)
                process = _serve(directory, _command(directory, binaries, socket, settings or {}), orphan, resources)
            except OSError as error:
                raise DatabaseError(f"PostgreSQL cannot start in {data}: {error}.") from error
            return cls(binaries, socket, process, resources.pop_all())

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> None:
        """Stop it and wait for its end: connections are closed, what is committed is kept. Twice does no harm."""
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @staticmethod
    def reset(data: Path) -> None:
        """Remove the data for good. Refuses a directory that start() did not make and one that is in use."""
        try:
            directory = find_data_directory(data)
            if directory is None:
                return
            lock = directory.lock()
            try:
                _wait_for_orphan(directory)
                directory.remove()
            finally:
                os.close(lock)
        except OSError as error:
            raise DatabaseError(f"{data} cannot be removed: {error}.") from error


class _PostmasterFile(NamedTuple):
    """What PostgreSQL's own lock file says: the process, and `starting`, `ready` or `stopping` once it knows."""

    pid: int
    status: str


def _postmaster_file(cluster: Path) -> _PostmasterFile | None:
    with suppress(FileNotFoundError, ValueError, IndexError):
        lines = (cluster / "postmaster.pid").read_text(errors="replace").splitlines()
        return _PostmasterFile(int(lines[0]), lines[7].strip() if len(lines) > 7 else "")
    return None


def _create_cluster(directory: DataDirectory, binaries: PostgresBinaries) -> None:
    """Make the cluster and our database beside the final place, write it all to disk once, and rename it."""
    new = directory.new_cluster()
    locale = ["--locale=C"]
    if binaries.major >= 17:
        locale += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    at = ["-D", str(new)]
    initdb = ["--no-sync", "--no-instructions", "--data-checksums", "--auth=trust", f"--username={USER}"]
    account = directory.account
    binaries.run("initdb", *at, *initdb, "--encoding=UTF8", *locale, account=account)
    single = ["--single", "-F", *at, "-c", "exit_on_error=on", "postgres"]
    binaries.run("postgres", *single, account=account, statement=f"CREATE DATABASE {DATABASE}\n")
    binaries.run("initdb", *at, "--sync-only", account=account)
    new.rename(directory.cluster)
    home = os.open(directory.home, os.O_RDONLY)
    try:
        os.fsync(home)
    finally:
        os.close(home)


def _check_version(directory: DataDirectory, binaries: PostgresBinaries) -> None:
    written_by = (directory.cluster / "PG_VERSION").read_text().strip()
    if written_by != str(binaries.major):
        raise DatabaseError(
            f"The data in {directory.wanted} was written by PostgreSQL {written_by} and cannot be read by "
            f"{binaries.version}: dump it with pg_dump of version {written_by} and load it into a new directory."
        )


def _command(
    directory: DataDirectory, binaries: PostgresBinaries, socket: Path, settings: Mapping[str, str]
) -> list[str]:
    # Settings are arguments and not a file, so that an upgrade of Zembil reaches data directories made before it.
    quoted = '"' + str(socket).replace('"', '""') + '"'
    ours = {"listen_addresses": "", "unix_socket_directories": quoted, "port": "5432"}
    chosen = {**_SETTINGS, **settings, **ours, "logging_collector": "off", "log_destination": "stderr"}
    command = [str(binaries.bin / "postgres"), "-D", str(directory.cluster)]
    return command + [word for name, value in chosen.items() for word in ("-c", f"{name}={value}")]


def _serve(
    directory: DataDirectory, command: list[str], orphan: int | None, resources: ExitStack
) -> subprocess.Popen[bytes]:
    """Run the server until it is ready; `resources` gets what must be ended and closed later."""
    # A postmaster that was killed leaves its backends behind for moments; until they are gone the data is not free.
    deadline = time.monotonic() + _ORPHAN_SECONDS
    while True:
        with ExitStack() as attempt:
            process, said = _spawn(directory, command, orphan, attempt)
            if said is None:
                resources.push(attempt.pop_all())
                return process
        if "pre-existing shared memory block" not in said or time.monotonic() > deadline:
            raise DatabaseError(f"PostgreSQL did not start in {directory.wanted}:\n{said}")
        time.sleep(0.2)


def _spawn(
    directory: DataDirectory, command: list[str], orphan: int | None, attempt: ExitStack
) -> tuple[subprocess.Popen[bytes], str | None]:
    """Start the server once and wait: None if it is ready, otherwise the end of what it wrote into its log."""
    log = directory.open_log()
    try:
        log_start = os.fstat(log).st_size
        # A dead postmaster may still have its number: as a zombie, or given to a stranger. PostgreSQL takes a lock file
        # of its grandparent for stale (it is made for pg_ctl) and still looks for live backends in shared memory.
        variables = {} if orphan is None else {"PG_GRANDPARENT_PID": str(orphan)}
        process, leash = spawn_server(command, directory.account, log=log, environment=variables)
    finally:
        os.close(log)
    if leash is not None:
        attempt.callback(os.close, leash)
    attempt.callback(_end, process)
    moved_at, log_bytes = time.monotonic(), log_start
    while process.poll() is None and time.monotonic() - moved_at < _STALLED_SECONDS:
        if _postmaster_file(directory.cluster) == (process.pid, "ready"):
            return process, None
        if (now := directory.log.stat().st_size) != log_bytes:
            moved_at, log_bytes = time.monotonic(), now
        time.sleep(_POLL_SECONDS)
    with directory.log.open("rb") as written:
        written.seek(max(log_start, log_bytes - _SAID_BYTES_MAX))
        said = written.read().decode(errors="replace")
    return process, last_lines(said) or f"It wrote nothing into {directory.log}."


def _end(process: subprocess.Popen[bytes]) -> None:
    for number, seconds in _STOP_SECONDS:
        process.send_signal(number)  # does nothing if it has ended
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=seconds)
            return


def _remove_empty(directory: Path) -> None:
    with suppress(OSError):
        directory.rmdir()


def _wait_for_orphan(directory: DataDirectory) -> int | None:
    """Wait while a PostgreSQL whose parent has died shuts down; the number in its lock file, if that remains.

    We hold the lock of the directory, so no living Zembil owns such a server.
    """
    began = time.monotonic()
    while (found := _postmaster_file(directory.cluster)) is not None and _is_alive(found.pid, directory.cluster):
        waited_seconds = time.monotonic() - began
        bound = _ORPHAN_SECONDS if found.status == "stopping" else _ORPHAN_NOTICES_SECONDS
        if waited_seconds > bound:
            raise DatabaseError(
                f"The data directory {directory.wanted} is in use by PostgreSQL, process {found.pid}, "
                f"which Zembil did not start; stop it with `kill -INT {found.pid}`."
            )
        time.sleep(_POLL_SECONDS)
    return None if found is None else found.pid


def _is_alive(pid: int, cluster: Path) -> bool:
    """Whether the process is a PostgreSQL that works on the cluster, and no zombie and no stranger with its number."""
    if Path("/proc/self/cwd").exists():
        try:
            return Path(f"/proc/{pid}/cwd").readlink() == cluster
        except OSError:  # none, a zombie, or a process of somebody else
            return False
    listed = subprocess.run(  # noqa: S603 - our own command
        ["/bin/ps", "-o", "stat=,command=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout
    return not listed.startswith("Z") and f"-D {cluster} " in listed
