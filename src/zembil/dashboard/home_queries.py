"""SQL of the home page: what waits for somebody."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from zembil.db.pool import Connection


@dataclass(frozen=True, slots=True)
class Waiting:
    """How much needs somebody's attention."""

    refunds: int
    endpoints: int
    charges: int
    keys: int


async def count_waiting(conn: Connection, account_id: int, *, at: datetime, keys_within: timedelta) -> Waiting:
    """Refunds to approve, endpoints that fail, charges that nobody knows the fate of, keys that end soon."""
    row = await conn.fetchrow(
        """
        SELECT
            (SELECT count(*) FROM refunds WHERE account_id = $1 AND state = 'pending_approval') AS refunds,
            (SELECT count(*) FROM webhook_endpoints
             WHERE account_id = $1 AND enabled AND failing_since IS NOT NULL) AS endpoints,
            (SELECT count(*) FROM charges
             WHERE account_id = $1 AND state IN ('in_doubt', 'needs_review') AND ended_at IS NULL) AS charges,
            (SELECT count(*) FROM api_keys WHERE account_id = $1 AND revoked_at IS NULL AND expires_at > $2
             AND expires_at <= $2 + $3::interval) AS keys
        """,
        account_id,
        at,
        keys_within,
    )
    if row is None:
        raise RuntimeError("counts are always one row")
    return Waiting(row["refunds"], row["endpoints"], row["charges"], row["keys"])


@dataclass(frozen=True, slots=True)
class Hour:
    """What became of the payments that were created in an hour."""

    begins: datetime
    completed: int
    ended: int  # completed, failed or cancelled
    created: int
    completed_santim: int


async def list_hours(conn: Connection, account_id: int, *, since: datetime) -> list[Hour]:
    """The hours since an instant in which payments were created: counted as they were written, however many."""
    rows = await conn.fetch(
        """
        SELECT hour, sum(completed)::bigint AS completed, sum(completed + failed + cancelled)::bigint AS ended,
            sum(pending + completed + failed + cancelled)::bigint AS created,
            sum(completed_santim)::bigint AS completed_santim
        FROM payment_counts WHERE account_id = $1 AND hour >= $2 GROUP BY hour ORDER BY hour
        """,
        account_id,
        since,
    )
    return [Hour(row["hour"], row["completed"], row["ended"], row["created"], row["completed_santim"]) for row in rows]
