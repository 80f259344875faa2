"""The days of the request log: a partition each, made ahead and dropped when they are old."""

from datetime import datetime, timedelta
from typing import LiteralString, cast

from zembil import ids
from zembil.db.pool import Connection

_DAYS_AHEAD = 3
_DAY = timedelta(days=1)


async def make_days(conn: Connection, *, at: datetime) -> None:
    """Make the partitions of yesterday, today and the next days, where they are missing."""
    today = at.replace(hour=0, minute=0, second=0, microsecond=0)
    for day in (today + _DAY * ahead for ahead in range(-1, _DAYS_AHEAD + 1)):
        # DDL takes no parameters; the names and bounds are ours, made of a date.
        statement = (
            f"CREATE TABLE IF NOT EXISTS api_requests_{day:%Y_%m_%d} PARTITION OF api_requests"
            f" FOR VALUES FROM ('{ids.id_at(day)}') TO ('{ids.id_at(day + _DAY)}')"
        )
        await conn.execute(cast(LiteralString, statement))


async def drop_days(conn: Connection, *, before: datetime) -> None:
    """Drop the partitions of the days before that of an instant."""
    rows = await conn.fetch(
        """
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'api_requests'::regclass AND c.relname < $1
        ORDER BY c.relname
        """,
        f"api_requests_{before:%Y_%m_%d}",
    )
    for row in rows:
        await conn.execute(cast(LiteralString, f"DROP TABLE IF EXISTS {row['relname']}"))
