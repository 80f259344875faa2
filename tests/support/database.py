"""What is stored: a look into the tables behind a running Zembil."""

import asyncio
from typing import Any

from tests.support.gateway import Deployed
from zembil.accounts.secrets import hashed
from zembil.db.pool import connection


def query(gateway: Deployed, statement: str, *values: object) -> list[Any]:
    """The rows of a statement."""

    async def fetch() -> list[Any]:
        async with connection(gateway.database_url) as conn:
            driver: Any = conn
            return await driver.fetch(statement, *values)

    return asyncio.run(fetch())


def account_of(gateway: Deployed, key: str) -> int:
    """The account that a key opens."""
    return query(gateway, "SELECT account_id FROM api_keys WHERE secret_hash = $1", hashed(key))[0]["account_id"]


def stored_rows(gateway: Deployed, *accounts: int) -> dict[str, int]:
    """How many rows these accounts have in each table, and how far their clocks were moved."""
    tables = query(
        gateway,
        """
        SELECT c.relname AS name
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE a.attname = 'account_id' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
            AND c.relnamespace = 'public'::regnamespace
        """,
    )
    names = sorted(row["name"] for row in tables)
    assert {"payments", "events", "webhook_endpoints", "payment_counts"} <= set(names)
    counts = ", ".join(
        f"(SELECT count(*) FROM {name} WHERE account_id = ANY ($1)) AS {name}"  # noqa: S608  (our own tables)
        for name in names
    )
    clocks = "(SELECT sum(extract(epoch FROM clock_offset))::bigint FROM accounts WHERE id = ANY ($1)) AS clocks"
    return dict(query(gateway, f"SELECT {counts}, {clocks}", list(accounts))[0])
