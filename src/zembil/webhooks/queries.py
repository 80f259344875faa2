"""SQL for events and for the queue: what is to be sent, and what came of it."""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

from zembil.db.pool import Connection
from zembil.webhooks.model import Attempted, Dispatch, Event

# An attempt lasts at most ten seconds and its record a moment; one that is unrecorded after this was cut off by a
# crash. Until then it keeps its place among the four of its endpoint, so it is not long.
_IN_FLIGHT_MAX = timedelta(seconds=15)


async def insert_events(conn: Connection, events: Sequence[Event]) -> None:
    """Write events and a delivery for each endpoint that wants them.

    A delivery's id has the event's time and is otherwise made of event and endpoint, so that it needs no round trip.
    """
    await conn.execute(
        """
        WITH asked AS MATERIALIZED (
            SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::uuid[], $4::smallint[], $5::text[], $6::timestamptz[],
                                 $7::bytea[])
                AS t (account_id, id, object_id, sequence, type, created_at, payload)
        ), told AS (
            INSERT INTO events (account_id, id, object_id, sequence, type, created_at, payload)
            SELECT account_id, id, object_id, sequence, type, created_at, payload FROM asked
        )
        INSERT INTO pending_deliveries (account_id, endpoint_id, id, event_id, due_at)
        SELECT e.account_id, w.id, (left(e.id::text, 13) || right(md5(e.id::text || w.id::text), 20))::uuid, e.id, now()
        FROM asked e JOIN webhook_endpoints w
            ON w.account_id = e.account_id AND w.enabled AND w.events && ARRAY[e.type, '*']
        """,
        [event.account_id for event in events],
        [event.id for event in events],
        [event.object_id for event in events],
        [event.sequence for event in events],
        [event.type.value for event in events],
        [event.created_at for event in events],
        [event.payload for event in events],
    )


async def claim_due(
    conn: Connection,
    *,
    at: datetime,
    retry_at: Sequence[datetime],
    after: tuple[int, uuid.UUID],
    per_endpoint: int,
    limit: int,
) -> list[Dispatch]:
    """Claim deliveries that are due and record their attempt, before anything leaves.

    Walks the endpoints `after` this account and endpoint that have something waiting and takes from each at most what
    it has room for, so an endpoint with 200,000 waiting rows costs no more than one with ten. Until the result is
    recorded, the row is due again when the next attempt would be (`retry_at`, after attempt 1, 2 and 3): that is all
    that a crash leaves to do.
    """
    rows = await conn.fetch(
        """
        WITH RECURSIVE walk AS (
            (SELECT account_id, endpoint_id FROM pending_deliveries
             WHERE (account_id, endpoint_id) > ($7, $8) ORDER BY account_id, endpoint_id LIMIT 1)
            UNION ALL
            SELECT further.account_id, further.endpoint_id
            FROM walk CROSS JOIN LATERAL (
                SELECT account_id, endpoint_id FROM pending_deliveries p
                WHERE (p.account_id, p.endpoint_id) > (walk.account_id, walk.endpoint_id)
                ORDER BY account_id, endpoint_id LIMIT 1
            ) further
        ), chosen AS MATERIALIZED (
            SELECT due.account_id, due.endpoint_id, due.id
            FROM walk JOIN webhook_endpoints w
                ON w.account_id = walk.account_id AND w.id = walk.endpoint_id AND w.enabled
            CROSS JOIN LATERAL (
                SELECT p.account_id, p.endpoint_id, p.id
                FROM pending_deliveries p
                WHERE p.account_id = walk.account_id AND p.endpoint_id = walk.endpoint_id AND p.due_at <= $1
                    AND p.attempts_made < 3 AND (p.in_flight_until IS NULL OR p.in_flight_until <= $1)
                ORDER BY p.due_at
                LIMIT greatest(0, $5 - (SELECT count(*) FROM pending_deliveries f
                                        WHERE f.account_id = walk.account_id AND f.endpoint_id = walk.endpoint_id
                                            AND f.in_flight_until > $1))
                FOR UPDATE SKIP LOCKED
            ) due
            LIMIT $6
        ), claimed AS (
            UPDATE pending_deliveries p
            SET attempts_made = p.attempts_made + 1, due_at = ($2::timestamptz[])[p.attempts_made + 1],
                in_flight_until = $1 + $4::interval
            FROM chosen c
            WHERE p.account_id = c.account_id AND p.endpoint_id = c.endpoint_id AND p.id = c.id
            RETURNING p.account_id, p.endpoint_id, p.id, p.event_id, p.attempts_made
        ), recorded AS (
            INSERT INTO delivery_attempts (account_id, delivery_id, number, started_at)
            SELECT c.account_id, c.id, c.attempts_made, $3::timestamptz + a.clock_offset
            FROM claimed c JOIN accounts a ON a.id = c.account_id
        )
        SELECT c.account_id, a.livemode, c.endpoint_id, c.id, c.event_id, c.attempts_made, w.url, e.is_test,
            w.sealed_secret, w.sealed_next_secret, w.rotates_at, e.payload
        FROM claimed c
            JOIN accounts a ON a.id = c.account_id
            JOIN webhook_endpoints w ON w.account_id = c.account_id AND w.id = c.endpoint_id
            JOIN events e ON e.account_id = c.account_id AND e.id = c.event_id
        """,
        at,
        list(retry_at),
        at,
        _IN_FLIGHT_MAX,
        per_endpoint,
        limit,
        *after,
    )
    return [
        Dispatch(
            row["account_id"],
            row["livemode"],
            row["endpoint_id"],
            row["id"],
            row["event_id"],
            row["attempts_made"],
            at,
            row["url"],
            row["is_test"],
            row["sealed_secret"],
            row["sealed_next_secret"],
            row["rotates_at"],
            row["payload"],
        )
        for row in rows
    ]


async def update_attempt(conn: Connection, dispatch: Dispatch, attempted: Attempted) -> None:
    """Record what came of an attempt."""
    await conn.execute(
        """
        UPDATE delivery_attempts SET latency_ms = $4, status_code = $5, error = $6, response_body = $7
        WHERE account_id = $1 AND delivery_id = $2 AND number = $3 AND latency_ms IS NULL
        """,
        dispatch.account_id,
        dispatch.delivery_id,
        dispatch.attempt,
        attempted.latency_ms,
        attempted.status_code,
        attempted.error,
        attempted.response_body or None,
    )


async def update_delivery_to_wait(conn: Connection, dispatch: Dispatch, *, due_at: datetime) -> None:
    """Wait for the next attempt; nothing happens if another worker has gone on with the delivery meanwhile."""
    await conn.execute(
        """
        UPDATE pending_deliveries SET due_at = $5, in_flight_until = NULL
        WHERE account_id = $1 AND endpoint_id = $2 AND id = $3 AND attempts_made = $4
        """,
        dispatch.account_id,
        dispatch.endpoint_id,
        dispatch.delivery_id,
        dispatch.attempt,
        due_at,
    )


async def end_delivery(conn: Connection, dispatch: Dispatch, *, status: str, at: datetime) -> int | None:
    """Move a delivery from the queue to its last word; nothing happens if another worker has gone on with it.

    Answers how many of the endpoint's deliveries have failed in a row, if that has changed.
    """
    failed: int | None = await conn.fetchval(
        """
        WITH over AS (
            DELETE FROM pending_deliveries
            WHERE account_id = $1 AND endpoint_id = $2 AND id = $3 AND attempts_made = $4
            RETURNING account_id, id, endpoint_id, event_id, attempts_made, redelivery_of, redelivered_at
        ), moved AS (
            INSERT INTO deliveries (account_id, id, endpoint_id, event_id, status, attempts_made, redelivery_of,
                                    redelivered_at)
            SELECT account_id, id, endpoint_id, event_id, $5, attempts_made, redelivery_of, redelivered_at FROM over
        )
        UPDATE webhook_endpoints w
        SET failing_since = CASE WHEN $5 = 'failed'
                                THEN coalesce(w.failing_since, $6::timestamptz + a.clock_offset) END,
            failed_in_a_row = CASE WHEN $5 = 'failed' THEN w.failed_in_a_row + 1 ELSE 0 END
        FROM over JOIN accounts a ON a.id = over.account_id
        WHERE w.account_id = over.account_id AND w.id = over.endpoint_id
            AND ($5 = 'failed' OR w.failing_since IS NOT NULL)
        RETURNING w.failed_in_a_row
        """,
        dispatch.account_id,
        dispatch.endpoint_id,
        dispatch.delivery_id,
        dispatch.attempt,
        status,
        at,
    )
    return failed


async def end_deliveries_cut_off(conn: Connection, *, at: datetime) -> list[uuid.UUID]:
    """Fail deliveries whose third attempt was cut off by a crash: they are never attempted a fourth time.

    Answers the endpoints that fail since then.
    """
    rows = await conn.fetch(
        """
        WITH over AS (
            DELETE FROM pending_deliveries
            WHERE attempts_made = 3 AND in_flight_until <= $1
            RETURNING account_id, id, endpoint_id, event_id, attempts_made, redelivery_of, redelivered_at
        ), moved AS (
            INSERT INTO deliveries (account_id, id, endpoint_id, event_id, status, attempts_made, redelivery_of,
                                    redelivered_at)
            SELECT account_id, id, endpoint_id, event_id, 'failed', attempts_made, redelivery_of, redelivered_at
            FROM over
        ), counted AS (
            SELECT account_id, endpoint_id, count(*) AS failed FROM over GROUP BY account_id, endpoint_id
        )
        UPDATE webhook_endpoints w
        SET failing_since = coalesce(w.failing_since, $1::timestamptz + a.clock_offset),
            failed_in_a_row = w.failed_in_a_row + c.failed
        FROM counted c JOIN accounts a ON a.id = c.account_id
        WHERE w.account_id = c.account_id AND w.id = c.endpoint_id
        RETURNING w.id, w.failed_in_a_row = c.failed AS is_new
        """,
        at,
    )
    return [row["id"] for row in rows if row["is_new"]]


# Moves to `deliveries` what waits in vain: rows of the endpoints that are `gone`. What is in flight ends as it ends,
# and rows that somebody holds are taken by the next round; so nobody waits for anybody.
_CANCEL_OF_GONE = """
    chosen AS (
        SELECT p.account_id, p.endpoint_id, p.id
        FROM gone JOIN pending_deliveries p ON p.account_id = gone.account_id AND p.endpoint_id = gone.endpoint_id
        WHERE (p.in_flight_until IS NULL OR p.in_flight_until <= $1) AND p.attempts_made < 3
        FOR UPDATE OF p SKIP LOCKED
    ), over AS (
        DELETE FROM pending_deliveries p USING chosen c
        WHERE p.account_id = c.account_id AND p.endpoint_id = c.endpoint_id AND p.id = c.id
        RETURNING p.account_id, p.id, p.endpoint_id, p.event_id, p.attempts_made, p.redelivery_of, p.redelivered_at
    )
    INSERT INTO deliveries (account_id, id, endpoint_id, event_id, status, attempts_made, redelivery_of, redelivered_at)
    SELECT account_id, id, endpoint_id, event_id, 'cancelled', attempts_made, redelivery_of, redelivered_at FROM over
"""


async def cancel_deliveries(conn: Connection, account_id: int, endpoint_id: uuid.UUID, *, at: datetime) -> None:
    """Cancel what waits for an endpoint that was disabled or deleted in this transaction."""
    await conn.execute(
        "WITH gone AS (SELECT $2::bigint AS account_id, $3::uuid AS endpoint_id)," + _CANCEL_OF_GONE,
        at,
        account_id,
        endpoint_id,
    )


async def cancel_stray_deliveries(conn: Connection, *, at: datetime) -> None:
    """Cancel what waits for endpoints that are not there any more, or disabled.

    It was in flight when that happened, or was being written.
    """
    await conn.execute(
        """
        WITH RECURSIVE walk AS (
            (SELECT account_id, endpoint_id FROM pending_deliveries ORDER BY account_id, endpoint_id LIMIT 1)
            UNION ALL
            SELECT further.account_id, further.endpoint_id
            FROM walk CROSS JOIN LATERAL (
                SELECT account_id, endpoint_id FROM pending_deliveries p
                WHERE (p.account_id, p.endpoint_id) > (walk.account_id, walk.endpoint_id)
                ORDER BY account_id, endpoint_id LIMIT 1
            ) further
        ), gone AS (
            SELECT walk.account_id, walk.endpoint_id
            FROM walk LEFT JOIN webhook_endpoints w ON w.account_id = walk.account_id AND w.id = walk.endpoint_id
            WHERE w.enabled IS NOT TRUE
        ),
        """
        + _CANCEL_OF_GONE,
        at,
    )


async def advance_due_times(conn: Connection, account_id: int, *, by: timedelta) -> None:
    """The account's clock moved forward: what it waits for comes nearer.

    Also what is in flight: if that was cut off by a crash, nothing else moves it. If not, its end sets the time anew.
    """
    await conn.execute(
        "UPDATE pending_deliveries SET due_at = due_at - $2::interval WHERE account_id = $1", account_id, by
    )
