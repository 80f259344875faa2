"""SQL of the HTTP toolkit: idempotency keys, rate limits."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from zembil.db.pool import Connection

KEPT = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """What a key was used for, and what was answered then."""

    fingerprint: bytes
    resource_id: uuid.UUID | None
    status: int | None
    answer: bytes | None
    is_sealed: bool


async def claim_key(conn: Connection, account_id: int, key: str, *, fingerprint: bytes, at: datetime) -> bool:
    """Take a key for this transaction, if it is new or older than a day. Waits for a transaction that holds it."""
    claimed = await conn.fetchval(
        """
        INSERT INTO idempotency_keys AS k (account_id, key, fingerprint, created_at)
        VALUES ($1, $2, $3, $4)
        ON CONFLICT (account_id, key) DO UPDATE
        SET fingerprint = excluded.fingerprint, created_at = excluded.created_at, resource_id = NULL, status = NULL,
            answer = NULL, is_sealed = false
        WHERE k.created_at <= excluded.created_at - $5::interval
        RETURNING true
        """,
        account_id,
        key,
        fingerprint,
        at,
        KEPT,
    )
    return bool(claimed)


async def store_answer(
    conn: Connection, account_id: int, key: str, *, status: int, answer: bytes, is_sealed: bool
) -> None:
    """Keep the answer to the request that holds the key, in its transaction."""
    await conn.execute(
        "UPDATE idempotency_keys SET status = $3, answer = $4, is_sealed = $5 WHERE account_id = $1 AND key = $2",
        account_id,
        key,
        status,
        answer,
        is_sealed,
    )


async def find_answer(conn: Connection, account_id: int, key: str) -> StoredAnswer | None:
    row = await conn.fetchrow(
        """
        SELECT fingerprint, resource_id, status, answer, is_sealed FROM idempotency_keys
        WHERE account_id = $1 AND key = $2
        """,
        account_id,
        key,
    )
    if row is None:
        return None
    return StoredAnswer(row["fingerprint"], row["resource_id"], row["status"], row["answer"], row["is_sealed"])


async def delete_old_keys(conn: Connection, *, at: datetime, limit: int) -> int:
    """Forget keys that nobody can use any more; where a sandbox's clock was moved forward they stay a while longer."""
    done = await conn.execute(
        """
        DELETE FROM idempotency_keys k USING (
            SELECT account_id, key FROM idempotency_keys WHERE created_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED
        ) old WHERE k.account_id = old.account_id AND k.key = old.key
        """,
        at - KEPT,
        limit,
    )
    return int(done.rsplit(" ", 1)[1])


# Rate limits


@dataclass(frozen=True, slots=True)
class Lease:
    """What was granted of a limit, and how the rest stands."""

    granted: int
    held: int  # by everyone's leases before this one
    first_ends_seconds: float | None  # until the first of those counts no more


@dataclass(frozen=True, slots=True)
class UsedLease:
    """A lease that is used up or over: what it was really used for, and how long ago it was used last."""

    scope: str
    id: uuid.UUID
    used: int
    seconds_ago: float


async def lock_limit(conn: Connection, scope: str) -> None:
    """Until the transaction ends, nobody else leases of this limit."""
    await conn.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 60))", scope)


async def settle_leases(conn: Connection, leases: Sequence[UsedLease], *, window: timedelta) -> None:
    """Give back what was not used; what was used counts until it is a window old."""
    await conn.execute(
        """
        UPDATE rate_limit_leases l
        SET permits = used.permits, counts_until = now() + $5::interval - make_interval(secs => used.seconds_ago)
        FROM unnest($1::text[], $2::uuid[], $3::integer[], $4::float8[]) AS used (scope, id, permits, seconds_ago)
        WHERE l.scope = used.scope AND l.id = used.id
        """,
        [lease.scope for lease in leases],
        [lease.id for lease in leases],
        [lease.used for lease in leases],
        [lease.seconds_ago for lease in leases],
        window,
    )


async def lease_permits(
    conn: Connection, scope: str, lease_id: uuid.UUID, *, limit: int, wanted: int, counts: timedelta
) -> Lease:
    """Lease up to `wanted` permits, fewer when few are left; the limit is locked."""
    row = await conn.fetchrow(
        """
        WITH held AS (
            SELECT coalesce(sum(permits), 0)::bigint AS permits, min(counts_until) AS first_ends FROM rate_limit_leases
            WHERE scope = $1 AND counts_until > now() AND permits > 0
        ), granted AS (
            INSERT INTO rate_limit_leases (scope, id, permits, counts_until)
            SELECT $1, $2, least($3, greatest(1, ($4 - permits) / 4)), now() + $5::interval FROM held WHERE permits < $4
            RETURNING permits
        )
        SELECT held.permits AS held, coalesce(granted.permits, 0) AS granted,
            extract(epoch FROM held.first_ends - now())::float8 AS first_ends_seconds
        FROM held LEFT JOIN granted ON true
        """,
        scope,
        lease_id,
        wanted,
        limit,
        counts,
    )
    if row is None:
        raise RuntimeError("a sum is always one row")
    return Lease(row["granted"], row["held"], row["first_ends_seconds"])


async def delete_old_leases(conn: Connection) -> None:
    await conn.execute("DELETE FROM rate_limit_leases WHERE counts_until <= now()")
