"""Where an embedded PostgreSQL keeps its files, who holds them, and how they are removed again.

The directory that was asked for holds everything: the cluster, the log, the socket, a lock, and a marker that says that
we made it. If we are root and the user that PostgreSQL must then run as cannot reach that directory, it holds only the
marker, which names the directory under /var/lib/zembil that holds the rest. Permissions of others are never changed.
"""

import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from zembil.db.postgres_binaries import Account, account_for, can_enter
from zembil.errors import DatabaseError

SYSTEM_DIRECTORY = Path("/var/lib/zembil")
_CLUSTER, _LOG, _LOCK, _SOCKET = "cluster", "postgresql.log", "lock", "socket"
_MARKER = "zembil-data.txt"
_MARK = "Zembil made this directory for the data of its embedded PostgreSQL. The files are in:"
_LOG_BYTES_MAX = 10_000_000
_LOCK_SECONDS = 0.5  # a process that was just killed may take moments to let go
_SOCKET_NAME = ".s.PGSQL.5432"
_SOCKET_PATH_BYTES_MAX = 103  # macOS; Linux allows four more


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """The directory that was asked for, the one that holds the files (mostly the same), and PostgreSQL's user."""

    wanted: Path
    home: Path
    account: Account | None

    @property
    def cluster(self) -> Path:
        return self.home / _CLUSTER

    @property
    def log(self) -> Path:
        return self.home / _LOG

    @property
    def copies(self) -> Path:
        """Where copies of PostgreSQL's programs go if they cannot be used in place."""
        return self.home if self.account is None else SYSTEM_DIRECTORY

    def open_log(self) -> int:
        """The log, to append to; a long one makes room first, and the one before it is dropped."""
        with suppress(FileNotFoundError):
            if self.log.stat().st_size > _LOG_BYTES_MAX:
                self.log.replace(self.log.with_suffix(".log.1"))
        return self._open(self.log, os.O_WRONLY | os.O_APPEND)

    def lock(self) -> int:
        """Hold the directory as long as the answered file is open, or raise with the process that holds it."""
        with ExitStack() as unless_held:
            lock = self._open(self.home / _LOCK, os.O_RDWR)
            unless_held.callback(os.close, lock)
            deadline = time.monotonic() + _LOCK_SECONDS
            while not _is_locked(lock):
                if time.monotonic() > deadline:
                    holder = os.pread(lock, 20, 0).decode() or "that is just starting"
                    raise DatabaseError(
                        f"The data directory {self.wanted} is in use by process {holder}; "
                        "stop it or choose another directory."
                    )
                time.sleep(0.02)
            if not os.path.samestat(os.fstat(lock), (self.home / _LOCK).stat()):
                raise DatabaseError(f"The data directory {self.wanted} has just been removed; try again.")
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
            unless_held.pop_all()
            return lock

    def private_directory(self, directory: Path) -> Path:
        """Make a directory that only PostgreSQL's user (and root) can enter, or see that it is one."""
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        found = directory.lstat()
        owner = os.geteuid() if self.account is None else self.account.uid
        private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
        if not private or found.st_uid not in (owner, os.geteuid()):
            raise DatabaseError(f"{directory} is not a private directory of PostgreSQL's user (id {owner}); remove it.")
        if self.account is not None:
            os.chown(directory, *self.account, follow_symlinks=False)
        return directory

    def socket_directory(self) -> Path:
        """A private directory whose path is short and plain enough for a socket."""
        if _fits_a_socket(self.home / _SOCKET):
            return self.private_directory(self.home / _SOCKET)
        name = f"zembil-{os.geteuid()}-{_hash(self.home)}"
        temporary = Path("/tmp" if self.account is not None else tempfile.gettempdir()) / name  # noqa: S108 - made private
        return self.private_directory(temporary if _fits_a_socket(temporary) else Path("/tmp") / name)  # noqa: S108

    def new_cluster(self) -> Path:
        """An empty directory beside the cluster, which becomes the cluster by one rename; earlier attempts go."""
        for leftover in self.home.glob(f"{_CLUSTER}.new-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        return self.private_directory(Path(tempfile.mkdtemp(prefix=f"{_CLUSTER}.new-", dir=self.home)))

    def remove(self) -> None:
        """Remove what we made and nothing else; the markers go last, so that an interrupted removal can be repeated."""
        patterns = (_CLUSTER, f"{_CLUSTER}.new-*", "postgresql-*", _SOCKET, f"{_LOG}*", _LOCK)
        for path in [path for pattern in patterns for path in self.home.glob(pattern)]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        for directory in dict.fromkeys((self.home, self.wanted)):
            (directory / _MARKER).unlink(missing_ok=True)
            with suppress(OSError):  # absent, or somebody put files of his own there: they stay
                directory.rmdir()

    def _open(self, path: Path, flags: int) -> int:
        # As root we may be writing into a user's directory: no link is followed, and the file stays that user's.
        file = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if os.geteuid() == 0:
            owner = self.home.stat()
            os.fchown(file, owner.st_uid, owner.st_gid)
        return file


def make_data_directory(wanted: Path) -> DataDirectory:
    """The data directory, made if it is new. It must be new, empty or ours."""
    wanted = wanted.resolve()
    account = account_for(wanted / _CLUSTER)
    if account is None:
        _mark(wanted, home=wanted, mode=0o700)
        return DataDirectory(wanted, wanted, None)
    home = _system_home(wanted)
    if not home.exists():
        _refuse_moved(wanted, home)
        # Entering is all that others may do here; the cluster itself is private to PostgreSQL's user.
        wanted.mkdir(mode=0o711, parents=True, exist_ok=True)
        if (wanted / _CLUSTER).exists() or can_enter(account, wanted):
            _mark(wanted, home=wanted, mode=0o711)
            return DataDirectory(wanted, wanted, account)
    _mark(wanted, home=home, mode=0o711)
    for directory in (SYSTEM_DIRECTORY, home):
        if not directory.exists():
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(0o755)
    _mark(home, home=home, mode=0o755)
    return DataDirectory(wanted, home, account_for(home / _CLUSTER))


def find_data_directory(wanted: Path) -> DataDirectory | None:
    """The data directory, None if there is nothing; raises if what is there is not ours."""
    wanted = wanted.resolve()
    candidates = (wanted, _system_home(wanted)) if os.geteuid() == 0 else (wanted,)
    existing = [directory for directory in candidates if directory.exists() and not _is_empty(directory)]
    for directory in existing:
        if _marked_home(directory) is None:
            raise DatabaseError(f"{directory} is not a data directory that Zembil made, so nothing was removed.")
    if not existing:
        return None
    _refuse_moved(wanted, existing[-1])
    return DataDirectory(wanted, existing[-1], account_for(existing[-1] / _CLUSTER))


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _system_home(wanted: Path) -> Path:
    return SYSTEM_DIRECTORY / f"{wanted.name.lstrip('.')[:20]}-{_hash(wanted)}"


def _mark(directory: Path, *, home: Path, mode: int) -> None:
    directory.mkdir(mode=mode, parents=True, exist_ok=True)
    marker = directory / _MARKER
    if not marker.is_file() and not _is_empty(directory):
        raise DatabaseError(
            f"{directory} is neither empty nor a data directory that Zembil made; choose another directory."
        )
    if _marked_home(directory) != home:
        marker.unlink(missing_ok=True)
        with suppress(FileExistsError), marker.open("x") as file:  # another start may be doing the same
            file.write(f"{_MARK}\n{home}\n")


def _marked_home(directory: Path) -> Path | None:
    """The directory that the marker names, None if there is no marker of ours."""
    with suppress(OSError, UnicodeDecodeError):
        lines = (directory / _MARKER).read_text().splitlines()
        if len(lines) == 2 and lines[0] == _MARK:
            return Path(lines[1])
    return None


def _refuse_moved(wanted: Path, home: Path) -> None:
    """A directory whose files are elsewhere finds them by its own path; moved or copied, it must not lose them."""
    named = _marked_home(wanted)
    if named is not None and SYSTEM_DIRECTORY in named.parents and named != home and named.exists():
        raise DatabaseError(
            f"{wanted} was moved or copied; its data is in {named}. "
            f"Rename that to {_system_home(wanted)} to go on with it, or remove {wanted / _MARKER} to begin anew."
        )


def _fits_a_socket(directory: Path) -> bool:
    path = directory / _SOCKET_NAME
    plain = str(path).isprintable() and "," not in str(path)  # clients read a comma as the end of a host
    return plain and len(os.fsencode(path)) <= _SOCKET_PATH_BYTES_MAX


def _is_empty(directory: Path) -> bool:
    return directory.is_dir() and not any(directory.iterdir())


def _hash(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
