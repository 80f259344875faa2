"""The time that Zembil goes by: the database's, so that processes on several machines agree."""

import time
from datetime import UTC, datetime, timedelta

from zembil.db.pool import Database

_SAMPLES = 3


class Clock:
    """This process's clock plus its measured distance from the database's."""

    def __init__(self) -> None:
        self._offset = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self._offset

    @property
    def offset(self) -> timedelta:
        """How far this process's clock is behind the database's."""
        return self._offset

    async def measure(self, db: Database) -> None:
        """Measure the distance anew; of several samples the quickest counts, since its error is the smallest."""
        samples = [await self._sample(db) for _ in range(_SAMPLES)]
        self._offset = min(samples, key=lambda sample: sample[0])[1]

    async def _sample(self, db: Database) -> tuple[float, timedelta]:
        async with db.acquire() as conn:
            began, began_at = time.monotonic(), datetime.now(UTC)
            theirs: datetime = await conn.fetchval("SELECT clock_timestamp()")
            seconds = time.monotonic() - began
        return seconds, theirs - (began_at + timedelta(seconds=seconds / 2))
