"""How the answer of a receiver is read: its head before its body, and no more of it than a bound."""

import functools
import re
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

# Enough for any honest head and what is read of a body. It also ends what is no answer at all: "continue", empty lines
# or the size of a chunk without end, of which the parser would make nothing for ten seconds.
_ANSWER_BYTES_MAX = 128 * 1024
# Behind an empty line, also one whose first half came before.
_HEAD_ENDS = re.compile(rb"(?<=\n\r\n)|(?<=\n\n)|(?<=\A\r\n)|(?<=\A\n)")


class Connector(aiohttp.TCPConnector):
    """Makes connections whose answers are read with care."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType]
        self._factory = functools.partial(AnswerReader, loop=self._loop)


class AnswerReader(ResponseHandler):
    """Hands the parser what arrives.

    The parser takes a head and a faulty body that came together for one faulty answer. A 200 with complete headers is
    success whatever becomes of its body, so the parser gets the head by itself.
    """

    _bytes_left = 0

    def set_response_params(self, **parameters: Any) -> None:
        self._bytes_left = _ANSWER_BYTES_MAX
        super().set_response_params(**parameters)

    def data_received(self, data: bytes) -> None:
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            self._refuse()
            return
        for part in _HEAD_ENDS.split(data):
            if part or not data:
                super().data_received(part)
            if self.exception() is not None:
                self._refuse()
                return

    def _refuse(self) -> None:
        """End the connection, and tell whoever waits for the head or for the body."""
        if self._payload is not None:
            self._payload.set_exception(aiohttp.ClientPayloadError())
        if self.transport is not None:
            self.set_exception(aiohttp.ClientPayloadError())
            self.transport.close()
