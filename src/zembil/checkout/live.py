"""Tells open pages when their payment changes: server-sent events, fed by one question a second for all of them.

However many pages are open, a process asks the database once a second, for all the payments that they show. There is no
LISTEN/NOTIFY: it would make every payment slower, and no connection pooler passes it on.
"""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from zembil.checkout.queries import Key, find_standings
from zembil.checkout.standing import Standing
from zembil.db.pool import Database, reading
from zembil.errors import ServiceUnavailable
from zembil.telemetry import log

ASK_EVERY_SECONDS = 1.0
HEARTBEAT_SECONDS = 15.0
STREAM_SECONDS_MAX = 600.0
STREAMS_MAX = 2000  # of a process
STREAMS_OF_A_PAYMENT_MAX = 10
_RETRY_MS = 3000  # how soon a browser comes back whose stream has ended


class TooManyStreams(Exception):
    """No more pages can be told at once; this one has to ask from time to time."""


@dataclass(slots=True)
class _Watched:
    """A payment that pages show."""

    standing: Standing
    streams: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def change(self, standing: Standing) -> None:
        self.standing = standing
        self.wake()

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class Watchers:
    """The pages of this process that wait for news."""

    def __init__(self, db: Database, stopping: asyncio.Event) -> None:
        self._db = db
        self._stopping = stopping
        self._watched: dict[Key, _Watched] = {}
        self._streams = 0
        self._asking: asyncio.Task[None] | None = None

    @property
    def streams(self) -> int:
        return self._streams

    @contextmanager
    def _watching(self, key: Key, standing: Standing) -> Generator[_Watched]:
        """Have the payment watched for as long as this lasts. Raises TooManyStreams."""
        watched = self._watched.get(key)
        if self._streams >= STREAMS_MAX or (watched and watched.streams >= STREAMS_OF_A_PAYMENT_MAX):
            raise TooManyStreams
        if watched is None:
            watched = self._watched[key] = _Watched(standing)
        elif watched.standing != standing:
            watched.change(standing)
        watched.streams += 1
        self._streams += 1
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        try:
            yield watched
        finally:
            watched.streams -= 1
            self._streams -= 1
            if watched.streams == 0:
                del self._watched[key]

    async def stream(self, key: Key, known: Standing) -> AsyncGenerator[bytes]:
        """The events of one page: its payment's version now, and each later one until the payment has ended.

        Raises TooManyStreams with the first.
        """
        with self._watching(key, known) as watched:
            yield b"retry: %d\n\n" % _RETRY_MS + _told(known)
            loop = asyncio.get_running_loop()
            ends = loop.time() + STREAM_SECONDS_MAX
            while not known.is_final and not self._stopping.is_set() and loop.time() < ends:
                if watched.standing == known:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(watched.changed.wait(), HEARTBEAT_SECONDS)
                if watched.standing == known:
                    yield b":\n\n"
                else:
                    known = watched.standing
                    yield _told(known)

    async def _ask(self) -> None:
        """Ask how the watched payments stand, once a second, until nobody watches any more."""
        while self._watched and not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), ASK_EVERY_SECONDS)
            try:
                async with reading(self._db) as conn:
                    found = await find_standings(conn, list(self._watched))
            except ServiceUnavailable:
                log.warning("checkout.unwatched", reason="the database is away")
                continue
            for key, standing in found.items():
                if (watched := self._watched.get(key)) is not None and watched.standing != standing:
                    watched.change(standing)
        if self._stopping.is_set():
            for watched in self._watched.values():
                watched.wake()


def _told(standing: Standing) -> bytes:
    return f"data: {standing.version}\n\n".encode()
