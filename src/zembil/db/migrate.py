"""Migrations: plain numbered SQL, applied once, in order, by one process at a time."""

import re
from datetime import datetime, timedelta
from importlib.resources import files
from typing import LiteralString, cast

from zembil import ids
from zembil.db.days import make_days
from zembil.db.pool import Connection, connection
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
