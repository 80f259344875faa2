"""An application that does nothing: it reads the body and answers 201 with as many bytes as a new payment has."""

from collections.abc import Awaitable, Callable
from typing import Any

_ANSWER = b" " * 1500
_HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", b"%d" % len(_ANSWER)),
    (b"cache-control", b"no-store"),
]


async def app(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    if scope["type"] == "http":
        await receive()
        await send({"type": "http.response.start", "status": 201, "headers": _HEADERS})
        await send({"type": "http.response.body", "body": _ANSWER})
