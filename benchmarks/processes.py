"""The processes that are measured, started as people start them, and ended again."""

import base64
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

_START_SECONDS_MAX = 60
_STOP_SECONDS_MAX = 30
_POLL_SECONDS = 0.005
_ZEMBIL = (sys.executable, "-m", "zembil")
# High enough never to refuse: what a limit costs each request is measured with it.
_LIMITS = {"ZEMBIL_RATE_LIMIT_SANDBOX": "10000000", "ZEMBIL_RATE_LIMIT_LIVE": "10000000"}
_NO_LIMITS = {"ZEMBIL_RATE_LIMIT_SANDBOX": "0", "ZEMBIL_RATE_LIMIT_LIVE": "0"}


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running Zembil and a merchant's way in."""

    process: subprocess.Popen[bytes]
    base_url: str
    key: str
    start_seconds: float

    @property
    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """POST to the API; answers the `data` of the answer."""
        request = Request(  # noqa: S310  (our own server)
            self.base_url + path,
            data=json.dumps(body).encode(),
            headers={**self.authorization, "Content-Type": "application/json"},
        )
        with urlopen(request, timeout=10) as answer:  # noqa: S310
            return json.load(answer)["data"]


@contextmanager
def served(database_url: str, log: Path, *, limited: bool = True) -> Generator[Gateway]:
    """`zembil serve --no-worker`, as in production, with a merchant's live account."""
    port = _free_port()
    environment = {
        **os.environ,
        "ZEMBIL_DATABASE_URL": database_url,
        "ZEMBIL_SECRET_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
        "ZEMBIL_PUBLIC_URL": "https://pay.example.et",
        **(_LIMITS if limited else _NO_LIMITS),
    }
    began = time.monotonic()
    with _running([*_ZEMBIL, "serve", "--no-worker", "--port", str(port)], environment, log) as process:
        origin = f"http://127.0.0.1:{port}"
        _wait_until(process, log, lambda: _answers(f"{origin}/readyz"))
        seconds = time.monotonic() - began
        made = subprocess.run(
            [*_ZEMBIL, "merchant", "create", "Merkato Coffee", "--json"],
            env=environment,
            capture_output=True,
            check=True,
            timeout=_START_SECONDS_MAX,
        )
        yield Gateway(process, f"{origin}/v1", json.loads(made.stdout)["live"]["admin_key"], seconds)


@contextmanager
def developed(data: Path) -> Generator[Gateway]:
    """`zembil dev` on the data directory, with its first merchant's sandbox account."""
    ready_file, log = data.with_name(f"{data.name}-ready.json"), data.with_name(f"{data.name}.log")
    ready_file.unlink(missing_ok=True)
    began = time.monotonic()
    options = ["--port", "0", "--data", str(data), "--no-open", "--ready-file", str(ready_file)]
    with _running([*_ZEMBIL, "dev", *options], {**os.environ, **_LIMITS}, log) as process:
        _wait_until(process, log, ready_file.exists)
        seconds = time.monotonic() - began
        sandbox = json.loads(ready_file.read_text())["sandbox"]
        yield Gateway(process, sandbox["base_url"], sandbox["admin_key"], seconds)


@contextmanager
def working(database_url: str, log: Path, environment: Mapping[str, str]) -> Generator[subprocess.Popen[bytes]]:
    """`zembil worker` on a database that is migrated. It works already when this comes back, or will soon."""
    settings = {"ZEMBIL_DATABASE_URL": database_url, "ZEMBIL_PUBLIC_URL": "https://pay.example.et"}
    with _running([*_ZEMBIL, "worker"], {**os.environ, **settings, **environment}, log) as process:
        yield process


@contextmanager
def answering(app: str, log: Path) -> Generator[str]:
    """uvicorn with an application that does nothing: what HTTP alone costs. Answers its address."""
    port = _free_port()
    options = ["--http", "httptools", "--loop", "uvloop", "--no-access-log", "--port", str(port)]
    with _running([sys.executable, "-m", "uvicorn", app, *options], os.environ, log) as process:
        _wait_until(process, log, lambda: _answers(f"http://127.0.0.1:{port}/"))
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _running(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Generator[subprocess.Popen[bytes]]:
    with log.open("ab") as written:
        process = subprocess.Popen(command, stdout=written, stderr=written, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until(process: subprocess.Popen[bytes], log: Path, is_ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _START_SECONDS_MAX
    while not is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"it did not start:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(_POLL_SECONDS)


def _answers(url: str) -> bool:
    with suppress(OSError), urlopen(url, timeout=1) as answer:  # noqa: S310  (our own server)
        return answer.status < 300
    return False


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
