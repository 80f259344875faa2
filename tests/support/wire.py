"""Requests written byte by byte, for what an HTTP client would not send; and what every answer of the API must be."""

import json
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

ANSWER_SECONDS_MAX = 30

_WITH_DETAILS = ("validation_error", "payment_not_refundable", "refund_amount_exceeds_available")
_REQUEST_ID = re.compile(r"req_[0-9a-f]{26}")

Header = tuple[str, str | bytes]


@dataclass(frozen=True)
class RawAnswer:
    """An answer as it came over the wire."""

    status: int
    headers: dict[str, str]
    body: bytes
    closed: bool = False  # whether the server closed the connection after it

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def code(self) -> str | None:
        return self.json.get("error", {}).get("code")

    @property
    def fields(self) -> list[str]:
        """The fields that a refusal names."""
        return [fault["field"] for fault in self.json["error"].get("details", [])]


def request(
    method: str, target: str | bytes, *, key: str | None = None, headers: Iterable[Header] = (), body: bytes = b""
) -> bytes:
    """The bytes of a request. `target` goes out as it is; a body brings its length and, unless given, its type."""
    lines = [method.encode() + b" " + (target.encode() if isinstance(target, str) else target) + b" HTTP/1.1"]
    given: list[Header] = [*headers]
    names = {name.lower() for name, _ in given}
    if "host" not in names:
        given.append(("Host", "zembil.test"))
    if key is not None:
        given.append(("Authorization", f"Bearer {key}"))
    if body and "content-type" not in names:
        given.append(("Content-Type", "application/json"))
    if body and not names & {"content-length", "transfer-encoding"}:
        given.append(("Content-Length", str(len(body))))
    lines += [name.encode() + b": " + (value.encode() if isinstance(value, str) else value) for name, value in given]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def connect(origin: str) -> socket.socket:
    parts = urlsplit(origin)
    assert parts.hostname is not None
    assert parts.port is not None
    return socket.create_connection((parts.hostname, parts.port), timeout=ANSWER_SECONDS_MAX)


def exchange(origin: str, sent: bytes) -> RawAnswer:
    """Send the bytes on a connection of their own; the answer to them."""
    with connect(origin) as connection:
        # A server that refuses early closes before it has read everything.
        with suppress(ConnectionError):
            connection.sendall(sent)
        return read_answer(connection, head_only=sent.startswith(b"HEAD "))


def read_answer(connection: socket.socket, *, head_only: bool = False) -> RawAnswer:
    """The next answer on a connection. Raises EOFError if the connection ends first."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        raw += _received(connection)
    head, _, body = raw.partition(b"\r\n\r\n")
    status_line, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = 0 if head_only else int(headers.get("content-length", "0"))
    while len(body) < length:
        body += _received(connection)
    closed = headers.get("connection") == "close" and _is_closed(connection)
    return RawAnswer(int(status_line.split(" ")[1]), headers, body, closed)


def _received(connection: socket.socket) -> bytes:
    received = connection.recv(65536)
    if not received:
        raise EOFError("the server closed the connection")
    return received


def _is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def demand_an_api_answer(answer: RawAnswer) -> None:
    """What holds for every answer of the API, whatever was asked: the envelope, its type, a request id, never a 5xx."""
    assert answer.status < 500
    assert answer.headers["content-type"] == "application/json"
    assert _REQUEST_ID.fullmatch(answer.headers["zembil-request-id"])
    document = answer.json
    if answer.status < 400:
        assert document.keys() == {"status", "data"}
        assert document["status"] == "success"
        return
    assert document.keys() == {"status", "error"}
    assert document["status"] == "error"
    error = document["error"]
    assert error["code"]
    assert error["message"]
    assert ("details" in error) == (error["code"] in _WITH_DETAILS)
    for fault in error.get("details", []):
        assert fault.keys() == {"field", "message"}
        assert fault["field"]
        assert fault["message"]


def demand_a_refusal(answer: RawAnswer, status: int, code: str, field: str | None = None) -> None:
    """A refusal with this status and code, and if a field is given, a fault of that field."""
    demand_an_api_answer(answer)
    assert (answer.status, answer.code) == (status, code)
    if field is not None:
        assert field in answer.fields
