"""Bounds on a connection that uvicorn leaves to us: how long a request's head may take and how large it may be."""

import asyncio
import secrets
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from zembil.errors import ApiError, Fault
from zembil.web.responses import Answer, refusal

HEAD_SECONDS_MAX = 10
URL_BYTES_MAX = 8 * 1024
HEADERS_BYTES_MAX = 32 * 1024
# Of one request, however it is wrapped: a head, and a body in chunks of a byte with what stands around each.
REQUEST_BYTES_MAX = 1024 * 1024

_PHRASES = {400: b"Bad Request", 414: b"URI Too Long", 431: b"Request Header Fields Too Large"}


class _HeadRefused(ApiError):
    code = "validation_error"

    def __init__(self, message: str) -> None:
        super().__init__(message, details=(Fault("request", message),))


class _Malformed(_HeadRefused):
    status = 400


class _UrlTooLong(_HeadRefused):
    status = 414


class _HeadersTooLarge(_HeadRefused):
    status = 431


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with the bounds of reliability's promise 19; a head that breaks them ends its connection."""

    _head_deadline: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _unfinished_bytes = 0  # received of a request that is not complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_JoinedWrites(transport, self.loop))
        self._head_deadline = self.loop.call_later(HEAD_SECONDS_MAX, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_complete()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self._refuse(_Malformed("This is no HTTP request."))
            return
        self._unfinished_bytes += len(data)
        if self._unfinished_bytes > REQUEST_BYTES_MAX and not self.transport.is_closing():
            if self._head_deadline is not None:
                self._refuse(_HeadersTooLarge(f"The headers are larger than {HEADERS_BYTES_MAX} bytes."))
            self.transport.close()

    def _feed(self, data: bytes) -> None:
        """Parse what came. An offer to speak another protocol is passed over: the request is read without it."""
        while not self.transport.is_closing():
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                # The parser does not read on after an offer, so another one begins, from the request without it.
                read: int = offer.args[0]
                data = self._head_without_offer() + data[read:]
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            else:
                return

    def _head_without_offer(self) -> bytes:
        kept = b"".join(b"%s: %s\r\n" % header for header in self.headers if header[0] != b"upgrade")
        version = self.parser.get_http_version().encode("ascii")
        return b"%s %s HTTP/%s\r\n%s\r\n" % (self.parser.get_method(), self.url, version, kept)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = self._unfinished_bytes = 0
        if self._head_deadline is None:
            self._head_deadline = self.loop.call_later(HEAD_SECONDS_MAX, self._head_is_late)

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > URL_BYTES_MAX:
            self._refuse(_UrlTooLong(f"The address is longer than {URL_BYTES_MAX} bytes."))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_deadline is not None:  # what comes after the body is a trailer, and no header
            super().on_header(name, value)
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > HEADERS_BYTES_MAX:
            self._refuse(_HeadersTooLarge(f"The headers are larger than {HEADERS_BYTES_MAX} bytes."))

    def on_headers_complete(self) -> None:
        if self.parser.get_method() == b"CONNECT" or self.parser.get_http_version() not in ("1.1", "1.0"):
            self._refuse(_Malformed("This is an API over HTTP/1.1; it opens no tunnels."))
        if self.parser.should_upgrade() or self.transport.is_closing():
            return
        self._head_is_complete()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade() and not self.transport.is_closing():
            self._unfinished_bytes = 0
            super().on_message_complete()

    def _refuse(self, error: ApiError) -> None:
        if not self.transport.is_closing():
            self.transport.write(_written(refusal(error)))
            self.transport.close()

    def _head_is_complete(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

    def _head_is_late(self) -> None:
        self._head_deadline = None
        self.transport.close()


class _JoinedWrites(asyncio.Transport):
    """A transport that sends what is written in one turn of the event loop together.

    uvicorn writes head and body of an answer apart, and uvloop sends each at once: two system calls, two packets and
    two awakenings of the client, a tenth of what creating a payment costs.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(bytes(data))

    def _flush(self) -> None:
        if self._parts and not self._transport.is_closing():
            self._transport.write(b"".join(self._parts))
        self._parts.clear()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)


def _written(answer: Answer) -> bytes:
    return b"".join(
        (
            b"HTTP/1.1 %d %s\r\n" % (answer.status, _PHRASES[answer.status]),
            b"content-type: application/json\r\ncache-control: no-store\r\nconnection: close\r\n",
            b"zembil-request-id: req_%s\r\n" % secrets.token_hex(13).encode("ascii"),
            b"content-length: %d\r\n\r\n" % len(answer.body),
            answer.body,
        )
    )
