"""Answers: the contract's envelope, written once."""

from typing import Any

import msgspec
from starlette.types import Send

from zembil.errors import ApiError
from zembil.wire import encoded

Headers = tuple[tuple[bytes, bytes], ...]

REQUEST_ID_HEADER = b"zembil-request-id"
_JSON = (b"content-type", b"application/json")
_NO_STORE = (b"cache-control", b"no-store")


class Answer(msgspec.Struct, frozen=True):
    """A complete answer of the API."""

    status: int
    body: bytes
    headers: Headers = ()


def success(data: Any, *, status: int = 200) -> Answer:
    return Answer(status, b'{"status":"success","data":' + encoded(data) + b"}")


def refusal(error: ApiError) -> Answer:
    content: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.details:
        content["details"] = [{"field": fault.field, "message": fault.message} for fault in error.details]
    headers = tuple((name.lower().encode("ascii"), value.encode("ascii")) for name, value in error.headers)
    return Answer(error.status, b'{"status":"error","error":' + encoded(content) + b"}", headers)


async def send_answer(send: Send, answer: Answer, headers: Headers) -> None:
    """Send an answer, with what its request adds to its headers."""
    body = answer.body
    await send(
        {
            "type": "http.response.start",
            "status": answer.status,
            "headers": [
                _JSON,
                (b"content-length", b"%d" % len(body)),
                _NO_STORE,
                *headers,
                *answer.headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})
