"""Migrations: plain numbered SQL, applied once, in order, by one process at a time."""

import re
import uuid
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import LiteralString, cast

from zembil import ids
from zembil.db.days import make_days
from zembil.db.pool import Connection, LockNotAvailable, connection
from zembil.errors import DatabaseError

_LOCK = 7305141  # any number: every Zembil process asks for the same
_NAME = re.compile(r"(\d{4})_\w+\.sql")
_MONTHLY_TABLES = ("events", "deliveries", "delivery_attempts")
_MONTHS_AHEAD = 3


async def migrate(database_url: str) -> list[str]:
    """Bring the schema up to this version of Zembil; answers the names of what was applied.

    Raises DatabaseError if the database is newer than this program or older than PostgreSQL 15.
    """
    async with connection(database_url) as conn:
        if await conn.fetchval("SELECT current_setting('server_version_num')::int") < 150000:
            raise DatabaseError("Zembil needs PostgreSQL 15 or newer.")
        await conn.execute("SET lock_timeout = '60s'")
        await conn.execute("SELECT pg_advisory_lock($1)", _LOCK)
        await conn.execute("SET lock_timeout = '1s'")
        return await _apply_what_is_missing(conn)


async def demand_migrated(database_url: str) -> None:
    """Raises DatabaseError if the schema is not this version's: for processes that do not migrate."""
    async with connection(database_url) as conn:
        is_new = await conn.fetchval("SELECT to_regclass('schema_migrations') IS NULL")
        if is_new or await _missing(conn):
            raise DatabaseError("The database is not up to date; run `zembil migrate` first.")


async def _missing(conn: Connection) -> list[str]:
    """The names of the migrations that are to be applied. Raises DatabaseError if the database is newer."""
    done: set[str] = {row["name"] for row in await conn.fetch("SELECT name FROM schema_migrations")}
    known = migrations()
    if newer := sorted(done - known.keys()):
        raise DatabaseError(
            f"The database was made by a newer Zembil (it has {newer[-1]}); "
            "run that version, or restore a backup made before the upgrade."
        )
    return [name for name in known if name not in done]


async def _apply_what_is_missing(conn: Connection) -> list[str]:
    await conn.execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations"
        " (name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"
    )
    known = migrations()
    missing = await _missing(conn)
    for name in missing:
        async with conn.transaction():
            await conn.execute(cast(LiteralString, known[name]))
            await conn.execute("INSERT INTO schema_migrations (name) VALUES ($1)", name)
    now: datetime = await conn.fetchval("SELECT now()")
    await make_months(conn, at=now)
    await make_days(conn, at=now)
    return missing


def migrations() -> dict[str, str]:
    """Every migration by name, in order, with its SQL."""
    found = {
        entry.name: entry.read_text("utf-8")
        for entry in files("zembil.db").joinpath("migrations").iterdir()
        if _NAME.fullmatch(entry.name)
    }
    return dict(sorted(found.items()))


async def make_months(conn: Connection, *, at: datetime) -> None:
    """Make the partitions of this month and the next ones, where they are missing."""
    month = at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    for _ in range(_MONTHS_AHEAD + 1):
        following = (month + timedelta(days=32)).replace(day=1)
        for table in _MONTHLY_TABLES:
            # DDL takes no parameters; the names and bounds are ours, made of a date.
            statement = (
                f"CREATE TABLE IF NOT EXISTS {table}_{month:%Y_%m} PARTITION OF {table}"
                f" FOR VALUES FROM ('{ids.id_at(month)}') TO ('{ids.id_at(following)}')"
            )
            await conn.execute(cast(LiteralString, statement))
        month = following


async def drop_months(conn: Connection, *, before: datetime) -> list[str]:
    """Drop the months of history that ended before that instant, oldest first; answers which.

    A month is kept, and all that follow it, while something told in it is still to be delivered, or was sent again
    since: deliveries are shown with their event.
    """
    dropped: list[str] = []
    rows = await conn.fetch(
        """
        SELECT right(c.relname, 7) AS month
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'events'::regclass AND c.relname ~ '^events_[0-9]{4}_[0-9]{2}$'
        ORDER BY 1
        """
    )
    for row in rows:
        year, month = map(int, row["month"].split("_"))
        until = (datetime(year, month, 1, tzinfo=UTC) + timedelta(days=32)).replace(day=1)
        if until > before or not await _drop_month(conn, row["month"], until=until, before=before):
            break
        dropped.append(row["month"])
    return dropped


_WAITS = "SELECT EXISTS (SELECT FROM pending_deliveries WHERE event_id < $1)"
_SENT_AGAIN = "SELECT EXISTS (SELECT FROM deliveries WHERE redelivery_of IS NOT NULL AND event_id < $1 AND id >= $2)"


async def _drop_month(conn: Connection, month: str, *, until: datetime, before: datetime) -> bool:
    told_until = ids.id_at(until)
    if await conn.fetchval(_WAITS, told_until) or await conn.fetchval(_SENT_AGAIN, told_until, ids.id_at(before)):
        return False
    try:
        async with conn.transaction():
            # Everybody waits while we wait, so it is not long; the next round tries again.
            await conn.execute("SET LOCAL lock_timeout = '300ms'")
            for table in _MONTHLY_TABLES:
                await conn.execute(cast(LiteralString, f"DROP TABLE IF EXISTS {table}_{month}"))
            await _demand_that_nothing_waits(conn, told_until)
            await conn.execute("INSERT INTO dropped_months (until) VALUES ($1) ON CONFLICT DO NOTHING", until)
    except (_IsWaitedFor, LockNotAvailable):
        return False
    return True


async def _demand_that_nothing_waits(conn: Connection, told_until: uuid.UUID) -> None:
    """Whoever sends something again reads it first. Now that nobody can read, everything that waits is seen."""
    if await conn.fetchval(_WAITS, told_until):
        raise _IsWaitedFor


class _IsWaitedFor(Exception):
    """Undoes the dropping of a month."""
