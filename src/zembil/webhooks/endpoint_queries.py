"""SQL for endpoints."""

import uuid
from datetime import datetime

from zembil.db.pool import Connection, Record
from zembil.webhooks.model import Endpoint


async def insert_endpoint(conn: Connection, endpoint: Endpoint, *, endpoints_max: int) -> bool:
    """Register an endpoint unless the account has `endpoints_max` of them already."""
    # The account's row is the gate: two registrations at once are counted one after the other.
    await conn.execute("SELECT 1 FROM accounts WHERE id = $1 FOR NO KEY UPDATE", endpoint.account_id)
    done = await conn.execute(
        """
        INSERT INTO webhook_endpoints (account_id, id, url, events, description, sealed_secret)
        SELECT $1, $2, $3, $4, $5, $6
        WHERE (SELECT count(*) FROM webhook_endpoints WHERE account_id = $1) < $7
        """,
        endpoint.account_id,
        endpoint.id,
        endpoint.url,
        list(endpoint.events),
        endpoint.description,
        endpoint.sealed_secret,
        endpoints_max,
    )
    return done == "INSERT 0 1"


async def find_endpoint(conn: Connection, account_id: int, endpoint_id: uuid.UUID) -> Endpoint | None:
    row = await conn.fetchrow(
        """
        SELECT account_id, id, url, events, description, sealed_secret, enabled, sealed_next_secret, rotates_at,
            failing_since
        FROM webhook_endpoints WHERE account_id = $1 AND id = $2
        """,
        account_id,
        endpoint_id,
    )
    return None if row is None else _endpoint(row)


async def lock_endpoint(conn: Connection, account_id: int, endpoint_id: uuid.UUID) -> Endpoint | None:
    """Read an endpoint and hold its row until the transaction ends."""
    row = await conn.fetchrow(
        """
        SELECT account_id, id, url, events, description, sealed_secret, enabled, sealed_next_secret, rotates_at,
            failing_since
        FROM webhook_endpoints WHERE account_id = $1 AND id = $2 FOR UPDATE
        """,
        account_id,
        endpoint_id,
    )
    return None if row is None else _endpoint(row)


async def list_endpoints(
    conn: Connection, account_id: int, *, before: uuid.UUID | None, limit: int, offset: int
) -> tuple[list[Endpoint], int]:
    """Newest first, and how many there are in all, both of one snapshot."""
    rows = await conn.fetch(
        """
        WITH total AS (SELECT count(*) AS total FROM webhook_endpoints WHERE account_id = $1),
        listed AS (
            SELECT account_id, id, url, events, description, sealed_secret, enabled, sealed_next_secret, rotates_at,
                failing_since
            FROM webhook_endpoints WHERE account_id = $1 AND ($2::uuid IS NULL OR id < $2)
            ORDER BY id DESC LIMIT $3 OFFSET $4
        )
        SELECT total.total, listed.* FROM total LEFT JOIN listed ON true ORDER BY listed.id DESC
        """,
        account_id,
        before,
        limit,
        offset,
    )
    return [_endpoint(row) for row in rows if row["id"] is not None], rows[0]["total"]


async def update_endpoint(conn: Connection, endpoint: Endpoint) -> None:
    """Write what a merchant may change of an endpoint; its row is held."""
    await conn.execute(
        """
        UPDATE webhook_endpoints
        SET url = $3, events = $4, description = $5, enabled = $6, sealed_secret = $7, sealed_next_secret = $8,
            rotates_at = $9
        WHERE account_id = $1 AND id = $2
        """,
        endpoint.account_id,
        endpoint.id,
        endpoint.url,
        list(endpoint.events),
        endpoint.description,
        endpoint.enabled,
        endpoint.sealed_secret,
        endpoint.sealed_next_secret,
        endpoint.rotates_at,
    )


async def delete_endpoint(conn: Connection, account_id: int, endpoint_id: uuid.UUID) -> bool:
    """Delete an endpoint; what was delivered to it stays on record."""
    done = await conn.execute(
        "DELETE FROM webhook_endpoints WHERE account_id = $1 AND id = $2", account_id, endpoint_id
    )
    return done == "DELETE 1"


def _endpoint(row: Record) -> Endpoint:
    rotates_at: datetime | None = row["rotates_at"]
    return Endpoint(
        row["account_id"],
        row["id"],
        row["url"],
        tuple(row["events"]),
        row["description"],
        row["sealed_secret"],
        row["enabled"],
        row["sealed_next_secret"],
        rotates_at,
        row["failing_since"],
    )
