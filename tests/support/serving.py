"""A `zembil serve` of our own on a database that is there already: another process of the same deployment."""

import base64
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from tests.support.gateway import START_SECONDS_MAX, STOP_SECONDS_MAX, ZEMBIL


@contextmanager
def serving(database_url: str, log: Path, **settings: str) -> Generator[str]:
    """A process with these settings, without a worker; its origin."""
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
            [*ZEMBIL, "serve", "--no-worker", "--port", str(port)],
            stdout=output,
            stderr=output,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    try:
        origin = f"http://127.0.0.1:{port}"
        _wait_until_it_answers(origin, process, log)
        yield origin
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
