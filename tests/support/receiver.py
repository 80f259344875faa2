"""A merchant's webhook receiver: keeps what arrives and answers as it is told."""

import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

Answer = Callable[[BaseHTTPRequestHandler], None]


class AnsweredByHand(Exception):
    """Raised by an answer that has written everything itself, to the last byte or not."""


@dataclass(frozen=True)
class Received:
    at: float
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        return msgspec.json.decode(self.body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512  # hundreds connect at once; one that is turned away comes back a second or more later


@dataclass
class Receiver:
    """Listens on loopback. `answer` writes the response; by default 200 at once."""

    answer: Answer = field(default=lambda request: request.send_response(200))
    received: list[Received] = field(default_factory=list[Received])

    def __post_init__(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.received.append(Received(time.monotonic(), headers, body))
                with suppress(AnsweredByHand, ConnectionError):
                    receiver.answer(self)
                    self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                del format, args

        self._server = _Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def speak_tls(self, context: ssl.SSLContext) -> None:
        """Connections from now on are TLS; the handshake is with the first byte that is read, in the thread of each."""
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/hooks"

    def wait_for(self, count: int, *, seconds: float = 15) -> list[Received]:
        """The first `count` requests; fails if they do not come in time."""
        deadline = time.monotonic() + seconds
        while len(self.received) < count:
            assert time.monotonic() < deadline, f"{len(self.received)} of {count} deliveries in {seconds} s"
            time.sleep(0.02)
        return self.received[:count]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
