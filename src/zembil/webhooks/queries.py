"""SQL for events and for the queue: what is to be sent, and what came of it."""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

from zembil.db.pool import Connection
from zembil.webhooks import lifecycle
from zembil.webhooks.model import Attempted, Dispatch, EndpointKey, Event


async def insert_events(conn: Connection, events: Sequence[Event]) -> None:
    """Write events and a delivery for each endpoint that wants them.

    A delivery's id has the event's time and is otherwise made of event and endpoint, so that it needs no round trip.
    """
    await conn.execute(
        """
        WITH asked AS MATERIALIZED (
            SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::uuid[], $4::integer[], $5::text[], $6::timestamptz[],
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


async def plan_anew(conn: Connection) -> None:
    """Until the transaction ends, every statement is planned for what the tables hold now.

    A plan is kept for long otherwise, and one made while the queue was empty reads all of it for each row: that is slow
    when 200,000 rows have come.
    """
    await conn.execute("SET LOCAL plan_cache_mode = force_custom_plan")


async def lock_endpoints_with_room(
    conn: Connection, *, after: EndpointKey, per_endpoint: int, limit: int
) -> list[EndpointKey]:
    """Endpoints behind `after` with something due and room for it, which until the transaction ends are ours alone.

    Walks from endpoint to endpoint, so one with 200,000 waiting rows costs no more than one with ten. Those that
    another worker is claiming for at this moment are passed over. How much room there is says the next statement, which
    sees everything that was committed before the lock was had.
    """
    rows = await conn.fetch(
        """
        WITH RECURSIVE walk AS (
            (SELECT account_id, endpoint_id, due_at FROM pending_deliveries
             WHERE in_flight_until IS NULL AND (account_id, endpoint_id) > ($1, $2)
             ORDER BY account_id, endpoint_id, due_at LIMIT 1)
            UNION ALL
            SELECT further.account_id, further.endpoint_id, further.due_at
            FROM walk CROSS JOIN LATERAL (
                SELECT account_id, endpoint_id, due_at FROM pending_deliveries p
                WHERE p.in_flight_until IS NULL AND (p.account_id, p.endpoint_id) > (walk.account_id, walk.endpoint_id)
                ORDER BY account_id, endpoint_id, due_at LIMIT 1
            ) further
        )
        SELECT account_id, endpoint_id FROM walk
        WHERE due_at <= statement_timestamp()
            AND CASE WHEN (SELECT count(*) FROM pending_deliveries f
                           WHERE f.account_id = walk.account_id AND f.endpoint_id = walk.endpoint_id
                                AND f.in_flight_until > statement_timestamp()) < $3
                THEN pg_try_advisory_xact_lock(hashtextextended('claim ' || endpoint_id::text, account_id)) END
        LIMIT $4
        """,
        *after,
        per_endpoint,
        limit,
    )
    return [(row["account_id"], row["endpoint_id"]) for row in rows]


async def claim_due(
    conn: Connection,
    endpoints: Sequence[EndpointKey],
    *,
    retry_delays: Sequence[timedelta],
    lease: timedelta,
    per_endpoint: int,
    limit: int,
) -> list[Dispatch]:
    """Claim what is due for these endpoints, which are locked, and record each attempt, before anything leaves.

    Until the result is recorded, the row is due again when the next attempt would be (`retry_delays` from now, after
    attempt 1, 2 and 3): that is all that a crash leaves to do.
    """
    rows = await conn.fetch(
        """
        WITH chosen AS MATERIALIZED (
            SELECT due.account_id, due.endpoint_id, due.id
            FROM unnest($1::bigint[], $2::uuid[]) AS locked (account_id, endpoint_id)
            JOIN webhook_endpoints w ON w.account_id = locked.account_id AND w.id = locked.endpoint_id AND w.enabled
            CROSS JOIN LATERAL (
                SELECT p.account_id, p.endpoint_id, p.id FROM pending_deliveries p
                WHERE p.account_id = locked.account_id AND p.endpoint_id = locked.endpoint_id
                    AND p.in_flight_until IS NULL AND p.due_at <= statement_timestamp()
                ORDER BY p.due_at
                LIMIT greatest(0, $5 - (SELECT count(*) FROM pending_deliveries f
                                        WHERE f.account_id = locked.account_id AND f.endpoint_id = locked.endpoint_id
                                            AND f.in_flight_until > statement_timestamp()))
                FOR UPDATE SKIP LOCKED
            ) due
            LIMIT $6
        ), claimed AS (
            UPDATE pending_deliveries p
            SET attempts_made = p.attempts_made + 1, in_flight_until = statement_timestamp() + $4,
                due_at = statement_timestamp() + ($3::interval[])[p.attempts_made + 1]
            FROM chosen c
            WHERE p.account_id = c.account_id AND p.endpoint_id = c.endpoint_id AND p.id = c.id
            RETURNING p.account_id, p.endpoint_id, p.id, p.event_id, p.attempts_made
        ), recorded AS (
            INSERT INTO delivery_attempts (account_id, delivery_id, number, started_at)
            SELECT c.account_id, c.id, c.attempts_made, statement_timestamp() + a.clock_offset
            FROM claimed c JOIN accounts a ON a.id = c.account_id
        )
        SELECT c.account_id, a.livemode, c.endpoint_id, c.id, c.event_id, c.attempts_made, w.url, w.sealed_secret,
            w.sealed_next_secret, w.rotates_at
        FROM claimed c
            JOIN accounts a ON a.id = c.account_id
            JOIN webhook_endpoints w ON w.account_id = c.account_id AND w.id = c.endpoint_id
        """,
        [account_id for account_id, _ in endpoints],
        [endpoint_id for _, endpoint_id in endpoints],
        list(retry_delays),
        lease,
        per_endpoint,
        limit,
    )
    events = await _find_events(conn, [(row["account_id"], row["event_id"]) for row in rows])
    return [
        Dispatch(*row.values(), is_test=is_test, payload=payload)
        for row in rows
        for is_test, payload in [events[row["event_id"]]]
    ]


async def _find_events(conn: Connection, keys: Sequence[tuple[int, uuid.UUID]]) -> dict[uuid.UUID, tuple[bool, bytes]]:
    """By id, whether it is a test event, and its payload."""
    if not keys:
        return {}
    event_ids = [event_id for _, event_id in keys]
    # The bounds tell the planner which months it need not look at.
    rows = await conn.fetch(
        """
        SELECT e.id, e.is_test, e.payload
        FROM unnest($1::bigint[], $2::uuid[]) AS asked (account_id, id)
            JOIN events e ON e.account_id = asked.account_id AND e.id = asked.id AND e.id BETWEEN $3 AND $4
        """,
        [account_id for account_id, _ in keys],
        event_ids,
        min(event_ids),
        max(event_ids),
    )
    return {row["id"]: (row["is_test"], row["payload"]) for row in rows}


# Moves what is `over` (with its `status`) to its last word, and tells their endpoints. Answers the endpoints that fail
# since then. Rows of endpoints are taken in one order by everyone, or two would wait for each other.
_END = """
    moved AS (
        INSERT INTO deliveries (account_id, id, endpoint_id, event_id, status, attempts_made, redelivery_of,
                                redelivered_at)
        SELECT account_id, id, endpoint_id, event_id, status, attempts_made, redelivery_of, redelivered_at FROM over
    ), counted AS (
        SELECT account_id, endpoint_id, bool_or(status = 'succeeded') AS arrives,
            count(*) FILTER (WHERE status = 'failed') AS failed
        FROM over GROUP BY account_id, endpoint_id
    ), touched AS MATERIALIZED (
        SELECT w.account_id, w.id, c.arrives, c.failed
        FROM counted c JOIN webhook_endpoints w ON w.account_id = c.account_id AND w.id = c.endpoint_id
        WHERE NOT c.arrives OR w.failing_since IS NOT NULL
        ORDER BY w.account_id, w.id
        FOR NO KEY UPDATE OF w
    )
    UPDATE webhook_endpoints w
    SET failing_since = CASE WHEN NOT t.arrives
                            THEN coalesce(w.failing_since, statement_timestamp() + a.clock_offset) END,
        failed_in_a_row = CASE WHEN t.arrives THEN 0 ELSE w.failed_in_a_row + t.failed END
    FROM touched t JOIN accounts a ON a.id = t.account_id
    WHERE w.account_id = t.account_id AND w.id = t.id
    RETURNING w.id, NOT t.arrives AND w.failed_in_a_row = t.failed AS is_new
"""


async def record_attempts(conn: Connection, ended: Sequence[tuple[Dispatch, Attempted]]) -> list[uuid.UUID]:
    """Record what came of attempts: each delivery ends, or waits for its next attempt.

    Of a delivery that another worker has gone on with, nothing changes. Answers the endpoints that fail since then.
    """
    delays = [None if came.succeeded else lifecycle.retry_delay(sent.attempt) for sent, came in ended]
    rows = await conn.fetch(
        """
        WITH asked AS MATERIALIZED (
            SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::uuid[], $4::smallint[], $5::text[], $6::interval[],
                                 $7::integer[], $8::smallint[], $9::text[], $10::bytea[])
                AS t (account_id, endpoint_id, id, attempt, status, delay, latency_ms, status_code, error, answer)
        ), recorded AS (
            UPDATE delivery_attempts a
            SET latency_ms = asked.latency_ms, status_code = asked.status_code, error = asked.error,
                response_body = asked.answer
            FROM asked
            WHERE a.account_id = asked.account_id AND a.delivery_id = asked.id AND a.number = asked.attempt
                AND a.latency_ms IS NULL AND a.delivery_id BETWEEN $11 AND $12
        ), waits AS (
            UPDATE pending_deliveries p SET due_at = statement_timestamp() + asked.delay, in_flight_until = NULL
            FROM asked
            WHERE p.account_id = asked.account_id AND p.endpoint_id = asked.endpoint_id AND p.id = asked.id
                AND p.attempts_made = asked.attempt AND asked.delay IS NOT NULL
        ), over AS (
            DELETE FROM pending_deliveries p USING asked
            WHERE p.account_id = asked.account_id AND p.endpoint_id = asked.endpoint_id AND p.id = asked.id
                AND p.attempts_made = asked.attempt AND asked.delay IS NULL
            RETURNING p.account_id, p.id, p.endpoint_id, p.event_id, p.attempts_made, p.redelivery_of,
                p.redelivered_at, asked.status
        ),
        """
        + _END,
        [sent.account_id for sent, _ in ended],
        [sent.endpoint_id for sent, _ in ended],
        [sent.delivery_id for sent, _ in ended],
        [sent.attempt for sent, _ in ended],
        ["succeeded" if came.succeeded else "failed" for _, came in ended],
        delays,
        [came.latency_ms for _, came in ended],
        [came.status_code for _, came in ended],
        [came.error for _, came in ended],
        [came.response_body or None for _, came in ended],
        min(sent.delivery_id for sent, _ in ended),  # which months the planner need not look at
        max(sent.delivery_id for sent, _ in ended),
    )
    return [row["id"] for row in rows if row["is_new"]]


async def end_deliveries_cut_off(conn: Connection) -> list[uuid.UUID]:
    """Fail deliveries whose third attempt was cut off by a crash: they are never attempted a fourth time.

    Answers the endpoints that fail since then.
    """
    rows = await conn.fetch(
        """
        WITH cut_off AS (
            SELECT account_id, endpoint_id, id FROM pending_deliveries
            WHERE attempts_made = 3 AND in_flight_until <= statement_timestamp()
            FOR UPDATE SKIP LOCKED
        ), over AS (
            DELETE FROM pending_deliveries p USING cut_off c
            WHERE p.account_id = c.account_id AND p.endpoint_id = c.endpoint_id AND p.id = c.id
            RETURNING p.account_id, p.id, p.endpoint_id, p.event_id, p.attempts_made, p.redelivery_of,
                p.redelivered_at, 'failed' AS status
        ),
        """
        + _END
    )
    return [row["id"] for row in rows if row["is_new"]]


async def update_deliveries_cut_off(conn: Connection) -> None:
    """Let what a crash cut off wait for its next attempt, which is due since it was claimed."""
    await conn.execute(
        """
        WITH cut_off AS (
            SELECT account_id, endpoint_id, id FROM pending_deliveries
            WHERE attempts_made < 3 AND in_flight_until <= statement_timestamp()
            FOR UPDATE SKIP LOCKED
        )
        UPDATE pending_deliveries p SET in_flight_until = NULL FROM cut_off c
        WHERE p.account_id = c.account_id AND p.endpoint_id = c.endpoint_id AND p.id = c.id
        """
    )


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
    # A row that is being claimed or recorded at this moment gets its time from that, and nobody waits for anybody.
    await conn.execute(
        """
        WITH chosen AS (
            SELECT account_id, endpoint_id, id FROM pending_deliveries WHERE account_id = $1 FOR UPDATE SKIP LOCKED
        )
        UPDATE pending_deliveries p SET due_at = p.due_at - $2::interval FROM chosen c
        WHERE p.account_id = c.account_id AND p.endpoint_id = c.endpoint_id AND p.id = c.id
        """,
        account_id,
        by,
    )
