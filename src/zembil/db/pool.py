"""Connections to PostgreSQL, and the words for them: `db` opens transactions, `conn` is inside its caller's."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, LiteralString, Protocol, cast

import asyncpg

from zembil.errors import ConfigurationError, DatabaseError, ServiceUnavailable


class Columns(Protocol):
    """Values by the names of their columns."""

    def __getitem__(self, column: str, /) -> Any: ...


class Record(Columns, Protocol):
    """A row."""

    def values(self) -> Iterable[Any]: ...


class Connection(Protocol):
    """What we use of an asyncpg connection. Statements are literals: the type checker refuses SQL made of values."""

    async def execute(self, query: LiteralString, *args: object) -> str: ...
    async def fetch(self, query: LiteralString, *args: object) -> list[Record]: ...
    async def fetchrow(self, query: LiteralString, *args: object) -> Record | None: ...
    async def fetchval(self, query: LiteralString, *args: object) -> Any: ...
    def transaction(
        self, *, isolation: str | None = None, readonly: bool = False
    ) -> AbstractAsyncContextManager[object]: ...


class Database(Protocol):
    """A pool of connections."""

    def acquire(self, *, timeout: float | None = None) -> AbstractAsyncContextManager[Connection]: ...


UniqueViolation = asyncpg.UniqueViolationError
LockNotAvailable = asyncpg.LockNotAvailableError

ACQUIRE_TIMEOUT_SECONDS = 5

# What PostgreSQL says when it is away, starting, stopping, full or overrun: the caller may try again.
_AWAY = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.CannotConnectNowError,
)
_CONFLICTS = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)


@asynccontextmanager
async def connected(database_url: str, *, connections_max: int) -> AsyncGenerator[Database]:
    """A pool for the life of a process."""
    pool = await asyncpg.create_pool(  # pyright: ignore[reportUnknownMemberType]
        database_url,
        min_size=0,
        max_size=connections_max,
        command_timeout=30,
        reset=_leave_as_it_is,
        server_settings={
            "application_name": "zembil",
            "timezone": "UTC",
            "statement_timeout": "5s",
            "lock_timeout": "2s",
            "idle_in_transaction_session_timeout": "30s",
            "jit": "off",
        },
    )
    try:
        yield cast(Database, pool)
    finally:
        await pool.close()


async def _leave_as_it_is(_: object) -> None:
    """Nothing of ours outlives its transaction, which the pool ends by itself: no SET, no LISTEN, no session's lock.

    Resetting all the same would be a second round trip after every statement.
    """


@asynccontextmanager
async def connection(database_url: str) -> AsyncGenerator[Connection]:
    """A connection of its own, for migrations and tools. Raises DatabaseError if there is none to be had."""
    try:
        conn: asyncpg.Connection = await asyncpg.connect(  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            database_url, server_settings={"timezone": "UTC"}
        )
    except (OSError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise DatabaseError(f"The database cannot be reached: {error or type(error).__name__}.") from None
    try:
        yield cast(Connection, conn)
    finally:
        await conn.close()  # pyright: ignore[reportUnknownMemberType]


@asynccontextmanager
async def transaction(db: Database) -> AsyncGenerator[Connection]:
    """One transaction, READ COMMITTED. Raises ServiceUnavailable if the database is away."""
    with database_faults():
        async with db.acquire(timeout=ACQUIRE_TIMEOUT_SECONDS) as conn, conn.transaction():
            yield conn


@asynccontextmanager
async def reading(db: Database) -> AsyncGenerator[Connection]:
    """A connection for one statement. Raises ServiceUnavailable if the database is away."""
    with database_faults():
        async with db.acquire(timeout=ACQUIRE_TIMEOUT_SECONDS) as conn:
            yield conn


@asynccontextmanager
async def snapshot(db: Database) -> AsyncGenerator[Connection]:
    """A connection for statements that all see one moment. Raises ServiceUnavailable if the database is away."""
    with database_faults():
        async with (
            db.acquire(timeout=ACQUIRE_TIMEOUT_SECONDS) as conn,
            conn.transaction(isolation="repeatable_read", readonly=True),
        ):
            yield conn


async def demand_durability(db: Database) -> None:
    """Raises ConfigurationError if the database may forget what it has acknowledged."""
    async with reading(db) as conn:
        rows = await conn.fetch(
            """
            SELECT name, setting FROM pg_settings
            WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off' ORDER BY name
            """
        )
    if rows:
        names = ", ".join(row["name"] for row in rows)
        raise ConfigurationError(
            f"Set {names} to on in PostgreSQL: with it off, a crash loses payments we have answered."
        )


class database_faults:  # noqa: N801  (used like a function: `with database_faults():`)
    """Turns "the database is away" into ServiceUnavailable, which a client may repeat; bugs stay bugs."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, (*_AWAY, *_CONFLICTS, asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError)):
            raise ServiceUnavailable from error
