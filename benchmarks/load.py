"""The load generator: keeps a number of requests in flight over keep-alive connections and times every answer.

It runs as a process of its own and shares the machine with what it measures, so it does little: the requests are made
before the round, and of an answer it reads the status and the length. Every POST must be answered 201, every GET 200.
"""

import asyncio
import itertools
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import cast
from urllib.parse import urlsplit

import msgspec
import uvloop

from benchmarks.figures import percentile

_LENGTH = b"content-length: "
_ANSWER_SECONDS_MAX = 10


class Order(msgspec.Struct, frozen=True):
    """What the process is to do; it reads this from standard input."""

    urls: list[str]  # of one server; asked in turn, again and again
    headers: dict[str, str]
    bodies: list[str]  # to be posted to the one address, in turn; if there are none, the addresses are read
    in_flight: int
    seconds: float
    requests_max: int


class Load(msgspec.Struct, frozen=True):
    """What came of it."""

    answers: int  # all of them, also those that came after the time was over
    answers_in_time: int
    seconds: float
    p50_ms: float
    p99_ms: float
    generator_cpu_us: float  # per answer

    @property
    def per_second(self) -> float:
        return self.answers_in_time / self.seconds


def post(
    url: str,
    bodies: Sequence[str],
    *,
    headers: Mapping[str, str],
    in_flight: int,
    seconds: float,
    requests_max: int = sys.maxsize,
) -> Load:
    """POST the bodies for so many seconds, but at most `requests_max` times. Raises RuntimeError if one is refused."""
    return _done(Order([url], dict(headers), list(bodies), in_flight, seconds, requests_max))


def get(urls: Sequence[str], *, headers: Mapping[str, str], in_flight: int, seconds: float) -> Load:
    """GET the addresses, all of one server, for so many seconds. Raises RuntimeError if one is refused."""
    return _done(Order(list(urls), dict(headers), [], in_flight, seconds, sys.maxsize))


def _done(order: Order) -> Load:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.load"],
        input=msgspec.json.encode(order),
        capture_output=True,
        timeout=order.seconds + 30,
        check=False,
    )
    if done.returncode != 0 or not done.stdout:
        said = done.stderr.decode(errors="replace")[-2000:]
        raise RuntimeError(f"the load generator ended with status {done.returncode}:\n{said}")
    return msgspec.json.decode(done.stdout, type=Load)


class _Round:
    """The connections' common state."""

    def __init__(self, order: Order) -> None:
        self.requests = itertools.islice(_posts(order) if order.bodies else _gets(order), order.requests_max)
        self.status = b"HTTP/1.1 201 " if order.bodies else b"HTTP/1.1 200 "
        self.began = self.ends = time.perf_counter()
        self.answers = 0
        self.latencies: list[float] = []
        self.is_over = asyncio.get_running_loop().create_future()
        self._working = order.in_flight

    def finish_one(self) -> None:
        self._working -= 1
        if self._working == 0 and not self.is_over.done():
            self.is_over.set_result(None)

    def fail(self, reason: str) -> None:
        if not self.is_over.done():
            self.is_over.set_exception(RuntimeError(reason))


class _Client(asyncio.Protocol):
    """One connection with one request in flight."""

    def __init__(self, measured: _Round) -> None:
        self._round = measured
        self._transport: asyncio.Transport | None = None
        self._sent_at = 0.0
        self._unfinished = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._round.fail(f"the server closed a connection: {exc}")

    def send(self) -> None:
        now = time.perf_counter()
        request = next(self._round.requests, None) if now < self._round.ends else None
        if request is None or self._transport is None:
            self._round.finish_one()
            return
        self._sent_at = now
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self._unfinished:
            data = self._unfinished + data
        head_bytes = data.find(b"\r\n\r\n") + 4
        if head_bytes == 3 or len(data) < head_bytes + _content_length(data):
            self._unfinished = data
            return
        self._unfinished = b""
        measured = self._round
        if not data.startswith(measured.status):
            measured.fail(data[:2000].decode(errors="replace"))
            return
        measured.answers += 1
        answered_at = time.perf_counter()
        if answered_at <= measured.ends:
            measured.latencies.append(answered_at - self._sent_at)
        self.send()


def _content_length(data: bytes) -> int:
    at = data.index(_LENGTH) + len(_LENGTH)
    return int(data[at : data.index(b"\r", at)])


def _posts(order: Order) -> Iterator[bytes]:
    """The orders in turn, each with an Idempotency-Key of its own."""
    head = f"POST {_head(order.urls[0], order)}Content-Type: application/json\r\n"
    parts = [
        (f"{head}Content-Length: {len(body)}\r\nIdempotency-Key: {uuid.uuid4()}-".encode(), body)
        for body in (text.encode() for text in order.bodies)
    ]
    for number, (beginning, body) in zip(itertools.count(), itertools.cycle(parts), strict=False):
        yield b"%s%d\r\n\r\n%s" % (beginning, number, body)


def _gets(order: Order) -> Iterator[bytes]:
    return itertools.cycle([f"GET {_head(url, order)}\r\n".encode() for url in order.urls])


def _head(address: str, order: Order) -> str:
    """The beginning of a request, behind its method."""
    url = urlsplit(address)
    target = url.path + (f"?{url.query}" if url.query else "")
    return f"{target} HTTP/1.1\r\nHost: {url.netloc}\r\n" + "".join(
        f"{name}: {value}\r\n" for name, value in order.headers.items()
    )


async def _run(order: Order) -> Load:
    url = urlsplit(order.urls[0])
    measured = _Round(order)
    loop = asyncio.get_running_loop()
    clients = [
        (await loop.create_connection(lambda: _Client(measured), url.hostname or "", url.port or 80))[1]
        for _ in range(order.in_flight)
    ]
    cpu_seconds = time.process_time()
    measured.began = time.perf_counter()
    measured.ends = measured.began + order.seconds
    for client in clients:
        client.send()
    await asyncio.wait_for(measured.is_over, order.seconds + _ANSWER_SECONDS_MAX)
    ended = min(time.perf_counter(), measured.ends)
    return Load(
        answers=measured.answers,
        answers_in_time=len(measured.latencies),
        seconds=ended - measured.began,
        p50_ms=1000 * percentile(measured.latencies, 50),
        p99_ms=1000 * percentile(measured.latencies, 99),
        generator_cpu_us=1e6 * (time.process_time() - cpu_seconds) / max(1, measured.answers),
    )


def main() -> None:
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(_run(order))))


if __name__ == "__main__":
    main()
