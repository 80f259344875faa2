"""SQL for deliveries as merchants see them, and for those that are made by hand."""

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from zembil import ids
from zembil.db.pool import Connection, Record
from zembil.webhooks.model import Attempt, Delivery, DeliveryStatus, EventType

_MILLISECOND = timedelta(milliseconds=1)
_ID_MAX = uuid.UUID(int=2**128 - 1)


@dataclass(frozen=True, slots=True)
class DeliveryFilter:
    """What a merchant asks of a list of deliveries; None asks nothing. Instants are in the account's time."""

    status: DeliveryStatus | None = None
    event_type: EventType | None = None
    object_id: uuid.UUID | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None


async def list_deliveries(
    conn: Connection,
    account_id: int,
    endpoint_id: uuid.UUID,
    wanted: DeliveryFilter,
    *,
    before: uuid.UUID | None,
    limit: int,
) -> list[Delivery]:
    """Newest first. A delivery stands in one of two tables, so one statement reads both."""
    # An account's clock is never behind the database's, so what was created by then has no later id.
    beyond = ids.id_at(wanted.created_to + _MILLISECOND) if wanted.created_to else _ID_MAX
    rows = await conn.fetch(
        """
        WITH of_object AS MATERIALIZED (SELECT id FROM events WHERE account_id = $1 AND object_id = $6)
        (SELECT p.id, p.endpoint_id, p.event_id, e.type, 'pending' AS status, p.attempts_made, p.redelivery_of,
            coalesce(p.redelivered_at, e.created_at) AS created_at, p.due_at, p.in_flight_until
        FROM pending_deliveries p JOIN events e ON e.account_id = p.account_id AND e.id = p.event_id
        WHERE p.account_id = $1 AND p.endpoint_id = $2 AND p.id < $3 AND ($4::text IS NULL OR $4 = 'pending')
            AND ($5::text IS NULL OR e.type = $5) AND ($6::uuid IS NULL OR p.event_id IN (SELECT id FROM of_object))
            AND ($7::timestamptz IS NULL OR coalesce(p.redelivered_at, e.created_at) >= $7)
            AND ($8::timestamptz IS NULL OR coalesce(p.redelivered_at, e.created_at) < $8)
        ORDER BY p.id DESC LIMIT $9)
        UNION ALL
        (SELECT d.id, d.endpoint_id, d.event_id, e.type, d.status, d.attempts_made, d.redelivery_of,
            coalesce(d.redelivered_at, e.created_at) AS created_at, NULL, NULL
        FROM deliveries d JOIN events e ON e.account_id = d.account_id AND e.id = d.event_id
        WHERE d.account_id = $1 AND d.endpoint_id = $2 AND d.id < $3 AND ($4::text IS NULL OR d.status = $4)
            AND ($5::text IS NULL OR e.type = $5) AND ($6::uuid IS NULL OR d.event_id IN (SELECT id FROM of_object))
            AND ($7::timestamptz IS NULL OR coalesce(d.redelivered_at, e.created_at) >= $7)
            AND ($8::timestamptz IS NULL OR coalesce(d.redelivered_at, e.created_at) < $8)
        ORDER BY d.id DESC LIMIT $9)
        ORDER BY id DESC LIMIT $9
        """,
        account_id,
        endpoint_id,
        min(before or _ID_MAX, beyond),
        wanted.status,
        wanted.event_type,
        wanted.object_id,
        wanted.created_from,
        wanted.created_to + _MILLISECOND if wanted.created_to else None,
        limit,
    )
    return [_delivery(row) for row in rows]


async def find_delivery(conn: Connection, account_id: int, delivery_id: uuid.UUID) -> Delivery | None:
    row = await conn.fetchrow(
        """
        SELECT p.id, p.endpoint_id, p.event_id, e.type, 'pending' AS status, p.attempts_made, p.redelivery_of,
            coalesce(p.redelivered_at, e.created_at) AS created_at, p.due_at, p.in_flight_until
        FROM pending_deliveries p JOIN events e ON e.account_id = p.account_id AND e.id = p.event_id
        WHERE p.account_id = $1 AND p.id = $2
        UNION ALL
        SELECT d.id, d.endpoint_id, d.event_id, e.type, d.status, d.attempts_made, d.redelivery_of,
            coalesce(d.redelivered_at, e.created_at) AS created_at, NULL, NULL
        FROM deliveries d JOIN events e ON e.account_id = d.account_id AND e.id = d.event_id
        WHERE d.account_id = $1 AND d.id = $2
        """,
        account_id,
        delivery_id,
    )
    return None if row is None else _delivery(row)


async def list_attempts(conn: Connection, account_id: int, delivery_id: uuid.UUID) -> list[Attempt]:
    """In their order; there are three at most."""
    rows = await conn.fetch(
        """
        SELECT number, started_at, latency_ms, status_code, error, response_body FROM delivery_attempts
        WHERE account_id = $1 AND delivery_id = $2 ORDER BY number
        """,
        account_id,
        delivery_id,
    )
    return [
        Attempt(
            row["number"],
            row["started_at"],
            row["latency_ms"],
            row["status_code"],
            row["error"],
            row["response_body"] or b"",
        )
        for row in rows
    ]


async def insert_delivery(conn: Connection, account_id: int, delivery: Delivery) -> None:
    """Put a delivery that was asked for by hand into the queue; it is due at once."""
    await conn.execute(
        """
        INSERT INTO pending_deliveries (account_id, endpoint_id, id, event_id, due_at, redelivery_of, redelivered_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        """,
        account_id,
        delivery.endpoint_id,
        delivery.id,
        delivery.event_id,
        delivery.due_at,
        delivery.redelivery_of,
        delivery.created_at if delivery.redelivery_of else None,
    )


async def lock_recovery(conn: Connection, account_id: int, endpoint_id: uuid.UUID) -> None:
    """Until the transaction ends, nobody else recovers the deliveries of this endpoint."""
    await conn.execute("SELECT pg_advisory_xact_lock(hashtextextended($2::uuid::text, $1))", account_id, endpoint_id)


async def list_to_recover(
    conn: Connection, account_id: int, endpoint_id: uuid.UUID, *, since: datetime, first: uuid.UUID, limit: int
) -> list[uuid.UUID]:
    """Deliveries that failed since, oldest first: for each event the last, unless it is pending or has arrived since.

    Every newer delivery of an event is a redelivery, so those that failed and the redeliveries are all there is to see.
    `first` is the first id that may be as late as `since`, which is in the account's time.
    """
    rows = await conn.fetch(
        """
        WITH seen AS (
            SELECT d.id, d.event_id, d.status, d.redelivered_at FROM deliveries d
            WHERE d.account_id = $1 AND d.endpoint_id = $2 AND d.id >= $3 AND d.status <> 'cancelled'
                AND (d.status = 'failed' OR d.redelivery_of IS NOT NULL)
            UNION ALL
            SELECT p.id, p.event_id, 'pending', p.redelivered_at FROM pending_deliveries p
            WHERE p.account_id = $1 AND p.endpoint_id = $2 AND p.id >= $3 AND p.redelivery_of IS NOT NULL
        ), last AS (
            SELECT DISTINCT ON (event_id) id, event_id, status, redelivered_at FROM seen ORDER BY event_id, id DESC
        )
        SELECT last.id FROM last JOIN events e ON e.account_id = $1 AND e.id = last.event_id
        WHERE last.status = 'failed' AND coalesce(last.redelivered_at, e.created_at) >= $4
        ORDER BY last.id LIMIT $5
        """,
        account_id,
        endpoint_id,
        first,
        since,
        limit,
    )
    return [row["id"] for row in rows]


async def insert_redeliveries(
    conn: Connection, account_id: int, failed: list[uuid.UUID], *, first: uuid.UUID, created_at: datetime
) -> None:
    """Put a new delivery of the same event into the queue for each of these; it is due at once.

    `first` is an id of now: the new ids have its time, and are otherwise made of it and of what failed.
    """
    await conn.execute(
        """
        INSERT INTO pending_deliveries (account_id, endpoint_id, id, event_id, due_at, redelivery_of, redelivered_at)
        SELECT d.account_id, d.endpoint_id,
            (left($3::uuid::text, 13) || right(md5($3::uuid::text || d.id::text), 20))::uuid, d.event_id, now(),
            d.id, $4
        FROM unnest($2::uuid[]) AS failed (id) JOIN deliveries d ON d.account_id = $1 AND d.id = failed.id
        """,
        account_id,
        failed,
        first,
        created_at,
    )


def _delivery(row: Record) -> Delivery:
    return Delivery(
        row["id"],
        row["endpoint_id"],
        row["event_id"],
        row["type"],
        DeliveryStatus(row["status"]),
        row["attempts_made"],
        row["created_at"],
        row["redelivery_of"],
        row["due_at"],
        row["in_flight_until"],
    )
