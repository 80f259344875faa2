"""A receiver that answers 200 to every POST at once: little HTTP, so that it is not what is measured.

`python -m benchmarks.receiving` listens on a free port of 127.0.0.1 and prints it. With `--hold` it never answers.
"""

import asyncio
import sys
from typing import cast

import uvloop

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK"
_LENGTH = b"content-length: "
_END = b"\r\n\r\n"


class _Receiving(asyncio.Protocol):
    """One connection; requests come one after another, as HTTP clients send them."""

    def __init__(self) -> None:
        self._read = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._read += data
        while (end := self._read.find(_END)) >= 0:
            head = self._read[:end].lower()
            at = head.index(_LENGTH) + len(_LENGTH)
            complete = end + len(_END) + int(head[at:].split(b"\r", 1)[0])
            if len(self._read) < complete:
                return
            self._read = self._read[complete:]
            if self._transport is not None:
                self._transport.write(_ANSWER)


async def _serve(protocol: type[asyncio.Protocol]) -> None:
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(asyncio.Protocol if "--hold" in sys.argv else _Receiving))
