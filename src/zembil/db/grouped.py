"""Grouped writes: rows that arrive while a statement is in flight travel together in the next one.

A commit costs a round trip and a flush whether it carries one row or a hundred. There is no timer: with one request in
flight nothing changes, with 32 the average group is 32. See docs/decisions/0003-grouped-writes.md.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

import asyncpg

from zembil.db.pool import ACQUIRE_TIMEOUT_SECONDS, Connection, Database, database_faults
from zembil.errors import ServiceUnavailable, ZembilError

Row = TypeVar("Row")
Result = TypeVar("Result")

ROWS_MAX = 128
QUEUE_MAX = 5000
WRITERS = 2  # one statement in flight, one filling

# Why a group is refused for the sake of one of its rows; anything else is nobody's fault and meets them all.
_ROWS_OWN = (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError, asyncpg.LockNotAvailableError, ZembilError)


class GroupedWriter(Generic[Row, Result]):
    """Writes queued rows with one statement per free writer.

    `write(conn, rows, writer)` is one statement that commits all rows or none and answers a result for each; `writer`
    is a small number that no two statements in flight share. If a group is refused, its rows are written one by one:
    only the guilty one fails.
    """

    def __init__(
        self, db: Database, write: Callable[[Connection, Sequence[Row], int], Awaitable[Sequence[Result]]]
    ) -> None:
        self._db = db
        self._write_rows = write
        self._queue: deque[tuple[Row, asyncio.Future[Result]]] = deque()
        self._free = list(range(WRITERS))
        self._scheduled = False
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, row: Row) -> asyncio.Future[Result]:
        """Queue a row; the future has its result once it is committed. It is written also if the caller goes away.

        Raises ServiceUnavailable if the queue is full.
        """
        if len(self._queue) >= QUEUE_MAX:
            raise ServiceUnavailable
        loop = asyncio.get_running_loop()
        committed: asyncio.Future[Result] = loop.create_future()
        self._queue.append((row, committed))
        if self._free and not self._scheduled:
            # The other requests of this turn of the event loop may join the group.
            self._scheduled = True
            loop.call_soon(self._flush)
        return committed

    async def drain(self) -> None:
        """Wait until everything queued is written or refused."""
        while self._tasks or self._queue:
            if self._tasks:
                await asyncio.wait(self._tasks)
            else:
                await asyncio.sleep(0)  # the first group is scheduled and about to leave

    def _flush(self) -> None:
        self._scheduled = False
        while self._queue and self._free:
            group = [self._queue.popleft() for _ in range(min(ROWS_MAX, len(self._queue)))]
            task = asyncio.create_task(self._write(self._free.pop(), group))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _write(self, writer: int, group: list[tuple[Row, asyncio.Future[Result]]]) -> None:
        try:
            with database_faults():
                async with self._db.acquire(timeout=ACQUIRE_TIMEOUT_SECONDS) as conn:
                    await self._write_group(conn, writer, group)
        except Exception as error:  # noqa: BLE001  (whatever it was, the callers that still wait hear of it)
            for _, committed in group:
                if not committed.done():
                    committed.set_exception(error)
        finally:
            self._free.append(writer)
            self._flush()

    async def _write_group(
        self, conn: Connection, writer: int, group: list[tuple[Row, asyncio.Future[Result]]]
    ) -> None:
        with suppress(*_ROWS_OWN):
            results = await self._write_rows(conn, [row for row, _ in group], writer)
            for (_, committed), result in zip(group, results, strict=True):
                if not committed.done():
                    committed.set_result(result)
            return
        for row, committed in group:
            try:
                (result,) = await self._write_rows(conn, [row], writer)
            except _ROWS_OWN as error:
                if not committed.done():
                    committed.set_exception(error)
            else:
                if not committed.done():
                    committed.set_result(result)
