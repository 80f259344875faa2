"""A `zembil dev` of our own: started on a free port and an empty directory, found by its ready file."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import httpx2
import psutil

from zembil.accounts.operations import create_merchant
from zembil.cli.local import named
from zembil.db.pool import connected

START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 30
ZEMBIL = (sys.executable, "-m", "zembil")


@dataclass(frozen=True)
class Merchant:
    """A merchant of its own for a test, with the keys of both environments."""

    origin: str
    sandbox: Mapping[str, str]
    live: Mapping[str, str]
    _clients: list[httpx2.Client] = field(default_factory=list[httpx2.Client])

    def client(self, *, livemode: bool = False, role: str = "admin") -> httpx2.Client:
        keys = self.live if livemode else self.sandbox
        client = httpx2.Client(
            base_url=self.origin + ("/v1" if livemode else "/sandbox/v1"),
            headers={"Authorization": f"Bearer {keys[f'{role}_key']}"},
            timeout=30,
        )
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()


class Deployed(Protocol):
    """A running Zembil: where it answers, and what it stores."""

    @property
    def origin(self) -> str: ...

    @property
    def database_url(self) -> str: ...


def new_merchant(deployed: Deployed, name: str) -> Merchant:
    """A merchant with the keys of both environments."""

    async def create() -> Merchant:
        async with connected(deployed.database_url, connections_max=1) as db:
            new = await create_merchant(db, name, at=datetime.now(UTC))
        return Merchant(deployed.origin, named(new.sandbox), named(new.live))

    return asyncio.run(create())


class Gateway:
    """A running `zembil dev`."""

    def __init__(self, data: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        began = time.monotonic()
        self.data = data
        self.ready_file = data.with_name(f"{data.name}-ready.json")
        self.ready_file.unlink(missing_ok=True)
        self.log = data.with_name(f"{data.name}.log")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(*ZEMBIL, "dev", "--port", "0", "--data", str(data), "--no-open"),
                    *("--ready-file", str(self.ready_file), *arguments),
                ],
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        self.ready: dict[str, Any] = self._wait()
        self.start_seconds = time.monotonic() - began

    def _wait(self) -> dict[str, Any]:
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            with suppress(FileNotFoundError):
                ready: dict[str, Any] = json.loads(self.ready_file.read_text())
                return ready
            time.sleep(0.02)
        raise AssertionError(f"zembil dev did not start:\n{self.log.read_text(errors='replace')[-4000:]}")

    @property
    def origin(self) -> str:
        return self.ready["origin"]

    @property
    def database_url(self) -> str:
        return self.ready["database_url"]

    def new_merchant(self, name: str = "Abebe's shop") -> Merchant:
        return new_merchant(self, name)

    def stop(self) -> int:
        """Ask it to stop, as Ctrl-C or an operator would; answers its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(timeout=STOP_SECONDS_MAX)

    @property
    def merchant(self) -> Merchant:
        """The merchant that the first start makes."""
        return Merchant(self.origin, self.ready["sandbox"], self.ready["live"])

    def kill(self) -> None:
        """Kill the process that was started, and nothing else of its tree."""
        self.process.kill()
        self.process.wait(timeout=STOP_SECONDS_MAX)

    def kill_tree(self) -> None:
        """Kill the process and everything that it started, at once: no one has time for a last word."""
        kill_all(tree_of(self.process.pid))
        self.process.wait(timeout=STOP_SECONDS_MAX)


def tree_of(pid: int) -> list[psutil.Process]:
    """A process and all that it started."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def kill_all(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def remaining(processes: list[psutil.Process], *, after_seconds: float) -> list[psutil.Process]:
    """Those that are still there after so long; answers at once when all are gone."""
    deadline = time.monotonic() + after_seconds
    while (there := [process for process in processes if _is_there(process)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return there


def _is_there(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
