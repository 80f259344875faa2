"""A `zembil serve` of our own: another process of the same deployment, or a deployment by itself."""

import base64
import json
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from tests.support.database import query
from tests.support.gateway import START_SECONDS_MAX, STOP_SECONDS_MAX, ZEMBIL, Gateway, Merchant, new_merchant


@contextmanager
def serving(database_url: str, log: Path, **settings: str) -> Generator[str]:
    """A process with these settings on a database that is there already, without a worker; its origin."""
    with _process(database_url, log, settings, "--no-worker") as (origin, _):
        yield origin


@dataclass(frozen=True)
class Deployment:
    """One process with API and worker, and what the tests look at from outside."""

    origin: str
    database_url: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def new_merchant(self) -> Merchant:
        return new_merchant(self, "Abebe's shop")


@contextmanager
def deployed(gateway: Gateway, log: Path, *arguments: str, **settings: str) -> Generator[Deployment]:
    """A `zembil serve` with these arguments and settings, on a new database of the gateway's PostgreSQL."""
    name = f"zembil_{secrets.token_hex(8)}"
    query(gateway, f"CREATE DATABASE {name}")
    database_url = urlsplit(gateway.database_url)._replace(path=f"/{name}").geturl()
    with _process(database_url, log, settings, *arguments) as (origin, process):
        yield Deployment(origin, database_url, process, log)


def names_as_told(directory: Path, table: Mapping[str, list[list[str]]]) -> dict[str, str]:
    """Settings of a process to which names mean what this table says; see names/sitecustomize.py."""
    path = directory / "names.json"
    path.write_text(json.dumps(table))
    found_first = [str(Path(__file__).with_name("names")), os.environ.get("PYTHONPATH", "")]
    return {"ZEMBIL_TEST_NAMES": str(path), "PYTHONPATH": os.pathsep.join(filter(None, found_first))}


@contextmanager
def _process(
    database_url: str, log: Path, settings: Mapping[str, str], *arguments: str
) -> Generator[tuple[str, "subprocess.Popen[bytes]"]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    environment = {
        "ZEMBIL_DATABASE_URL": database_url,
        "ZEMBIL_SECRET_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
        "ZEMBIL_PUBLIC_URL": "https://pay.example.et",
        **settings,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*ZEMBIL, "serve", *arguments, "--port", str(port)],
            stdout=output,
            stderr=output,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    try:
        origin = f"http://127.0.0.1:{port}"
        _wait_until_it_answers(origin, process, log)
        yield origin, process
    finally:
        process.terminate()
        process.wait(timeout=STOP_SECONDS_MAX)


def _wait_until_it_answers(origin: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx2.get(f"{origin}/readyz").status_code == 200:
                return
        except httpx2.TransportError:
            time.sleep(0.02)
    raise AssertionError(f"zembil serve did not start:\n{log.read_text(errors='replace')[-4000:]}")
