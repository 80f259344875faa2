"""Receivers that misbehave: one server whose answer is chosen by the path, written byte by byte."""

import asyncio
import socket
import ssl
import struct
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class HostileServer:
    """Reads each request whole, then does what stands under its path. A greeting is said before anything is read."""

    def __init__(
        self, behaviours: Mapping[str, Behaviour], *, tls: ssl.SSLContext | None = None, greeting: bytes = b""
    ) -> None:
        self.connections = 0
        self.requests: Counter[str] = Counter()
        self._behaviours = behaviours
        self._tls = tls
        self._greeting = greeting
        self._loop = asyncio.new_event_loop()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        # So that what was written is little more than what was taken.
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._stopping = asyncio.Event()
        self._thread.start()

    @property
    def port(self) -> int:
        return self._listening.getsockname()[1]

    def url(self, path: str, *, scheme: str = "http", host: str = "127.0.0.1") -> str:
        return f"{scheme}://{host}:{self.port}/{path}"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout=10)
        self._loop.close()

    def _serve(self) -> None:
        self._loop.run_until_complete(self._run())

    async def _run(self) -> None:
        server = await asyncio.start_server(self._answer, sock=self._listening, ssl=self._tls)
        await self._stopping.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await server.wait_closed()
        await asyncio.sleep(0.1)  # connections that were thrown away are closed in the loop's next turns

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            # It is cancelled when the server stops.
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                writer.write(self._greeting)
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                path = head.split(" ")[1].strip("/")
                self.requests[path] += 1
                length = next(line for line in head.lower().split("\r\n") if line.startswith("content-length:"))
                await reader.readexactly(int(length.partition(":")[2]))
                await self._behaviours[path](reader, writer)
        finally:
            writer.transport.abort()


def says(*parts: bytes, pause_seconds: float = 0.05) -> Behaviour:
    """Write the parts, a moment between them, and close."""

    async def behave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause_seconds)
        writer.close()
        await writer.wait_closed()

    return behave


def answers(status: int, **headers: str) -> Behaviour:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return says(f"HTTP/1.1 {status} X\r\n{lines}Content-Length: 0\r\n\r\n".encode())


def stalls(first: bytes = b"") -> Behaviour:
    """Write something, and then nothing until the other side has had enough."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        await reader.read()

    return behave


def late(seconds: float) -> Behaviour:
    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(seconds)
        await answers(200)(reader, writer)

    return behave


def drips(first: bytes, drop: bytes = b"x") -> Behaviour:
    """Write something, then a drop every half second until the other side has had enough."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        while not reader.at_eof():
            writer.write(drop)
            await writer.drain()
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.5)

    return behave


def floods(first: bytes, again: bytes, *, written: Counter[str] | None = None, name: str = "") -> Behaviour:
    """Write something, then the same again and again until the other side has had enough."""

    async def behave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        while True:
            writer.write(again)
            await writer.drain()
            if written is not None:
                written[name] += len(again)

    return behave


def resets(first: bytes = b"") -> Behaviour:
    """Write something, then throw the connection away."""

    async def behave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        await writer.drain()
        await asyncio.sleep(0.05)
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return behave


class FullServer:
    """Listens, and accepts nobody: its queue is full, so whoever knocks waits for ever."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=0)
        self._waiting: list[socket.socket] = []
        for _ in range(8):
            knocking = socket.socket()
            knocking.setblocking(False)
            knocking.connect_ex(self._listening.getsockname())
            self._waiting.append(knocking)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}/"

    def close(self) -> None:
        for knocking in (*self._waiting, self._listening):
            knocking.close()
