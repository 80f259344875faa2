"""The data directory of `zembil dev`: its PostgreSQL, its secret key, the keys of its first merchant."""

import base64
import json
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zembil.accounts.model import AccountKeys
from zembil.errors import ConfigurationError

_IGNORE_ALL = "*\n"


@dataclass(frozen=True, slots=True)
class LocalData:
    """What `zembil dev` keeps in its directory; everything in it is for its owner's eyes."""

    directory: Path

    @property
    def postgres(self) -> Path:
        return self.directory / "postgres"

    @property
    def running(self) -> Path:
        """The ready file of the process that runs now; other commands find the database by it."""
        return self.directory / "running.json"

    def make(self) -> None:
        """Make the directory; a new one is kept out of git. Raises ConfigurationError."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            if not any(self.directory.iterdir()):
                self._ignored.write_text(_IGNORE_ALL)
        except OSError as error:
            raise ConfigurationError(f"Cannot keep data in {self.directory}: {error.strerror}.") from error

    @property
    def _ignored(self) -> Path:
        return self.directory / ".gitignore"

    def secret_key(self) -> bytes:
        """The key that seals secrets here; made on the first start."""
        path = self.directory / "secret.key"
        with suppress(FileNotFoundError):
            return base64.b64decode(path.read_text())
        key = secrets.token_bytes(32)
        write_private(path, base64.b64encode(key).decode() + "\n")
        return key

    def first_keys(self) -> dict[str, dict[str, str]] | None:
        """The keys of the first merchant, sandbox and live, or None before the first start."""
        with suppress(FileNotFoundError):
            keys: dict[str, dict[str, str]] = json.loads(self.keys.read_text())
            return keys
        return None

    def keep_first_keys(self, keys: dict[str, dict[str, str]]) -> None:
        write_private(self.keys, json.dumps(keys, indent=2) + "\n")

    @property
    def keys(self) -> Path:
        """The file with the keys of the first merchant."""
        return self.directory / "keys.json"

    def reset(self) -> None:
        """Remove everything that is ours, and nothing else."""
        from zembil.db.embedded import EmbeddedPostgres

        EmbeddedPostgres.reset(self.postgres)
        for path in (self.keys, self.directory / "secret.key", self.running):
            path.unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            if self._ignored.read_text() == _IGNORE_ALL:
                self._ignored.unlink()


def write_private(path: Path, text: str) -> None:
    """Write a file in one step, readable by its owner only: it is whole or it is not there.

    Raises ConfigurationError if it cannot be written.
    """
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise ConfigurationError(f"Cannot write {path}: {error.strerror}.") from error


def named(keys: AccountKeys) -> dict[str, str]:
    return {"admin_key": keys.admin_key, "developer_key": keys.developer_key, "read_only_key": keys.read_only_key}


def ready_document(origin: str, keys: dict[str, dict[str, str]], database_url: str) -> dict[str, Any]:
    """What --ready-file and `merchant create --json` say."""
    return {
        "origin": origin,
        "sandbox": {"base_url": f"{origin}/sandbox/v1", **keys["sandbox"]},
        "live": {"base_url": f"{origin}/v1", **keys["live"]},
        "database_url": database_url,
    }
