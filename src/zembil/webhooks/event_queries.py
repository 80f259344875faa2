"""SQL for events as merchants see them."""

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from zembil import ids
from zembil.db.pool import Connection
from zembil.webhooks.model import Event, EventType

_MILLISECOND = timedelta(milliseconds=1)
_ID_MAX = uuid.UUID(int=2**128 - 1)
_BEFORE_ALL = uuid.UUID(int=0)


@dataclass(frozen=True, slots=True)
class EventFilter:
    """What a merchant asks of a list of events; None asks nothing. Instants are in the account's time."""

    event_type: EventType | None = None
    object_id: uuid.UUID | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None


async def list_events(
    conn: Connection, account_id: int, wanted: EventFilter, *, before: uuid.UUID | None, limit: int
) -> list[tuple[uuid.UUID, bytes]]:
    """The ids and payloads of events, newest first."""
    # An account's clock is never behind the database's, so what was created by then has no later id. Of an object there
    # are few events; they are found by it, whatever the planner may think of reading the whole account's in order.
    beyond = ids.id_at(wanted.created_to + _MILLISECOND) if wanted.created_to else _ID_MAX
    rows = await conn.fetch(
        """
        WITH of_object AS MATERIALIZED (
            SELECT id FROM events WHERE account_id = $1 AND object_id = $4
        ), chosen AS (
            (SELECT e.id FROM events e
             WHERE $4::uuid IS NULL AND e.account_id = $1 AND e.id < $2 AND NOT e.is_test
                AND ($3::text IS NULL OR e.type = $3)
                AND ($5::timestamptz IS NULL OR e.created_at >= $5) AND ($6::timestamptz IS NULL OR e.created_at < $6)
             ORDER BY e.id DESC LIMIT $7)
            UNION ALL
            SELECT id FROM of_object
        )
        SELECT e.id, e.payload FROM chosen JOIN events e ON e.account_id = $1 AND e.id = chosen.id
        WHERE e.id < $2 AND NOT e.is_test AND ($3::text IS NULL OR e.type = $3)
            AND ($5::timestamptz IS NULL OR e.created_at >= $5) AND ($6::timestamptz IS NULL OR e.created_at < $6)
        ORDER BY e.id DESC LIMIT $7
        """,
        account_id,
        min(before or _ID_MAX, beyond),
        *_parameters(wanted),
        limit,
    )
    return [(row["id"], row["payload"]) for row in rows]


async def list_events_in_order_of_writing(
    conn: Connection, account_id: int, wanted: EventFilter, *, after: uuid.UUID | None, limit: int
) -> list[tuple[uuid.UUID, bytes]]:
    """The ids and payloads of events behind `after`, each once no transaction can still write one before it.

    Transactions are numbered as they begin to write. Those below the oldest that still runs are over, and what they
    wrote is seen; whatever is written from now on has a higher number. So nothing can come before what is answered
    here, however long an event's id was made before its transaction. Docs: decisions/0010-following-events.md.
    """
    rows = await conn.fetch(
        """
        WITH behind AS MATERIALIZED (
            SELECT coalesce((SELECT written_by FROM events WHERE account_id = $1 AND id = $2), -1) AS written_by,
                pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest_running
        ), of_object AS MATERIALIZED (
            SELECT id FROM events WHERE account_id = $1 AND object_id = $4
        ), chosen AS (
            (SELECT e.id FROM events e
             WHERE $4::uuid IS NULL AND e.account_id = $1 AND NOT e.is_test
                AND e.written_by < (SELECT oldest_running FROM behind)
                AND (e.written_by, e.id) > ((SELECT written_by FROM behind), $2)
                AND ($3::text IS NULL OR e.type = $3)
                AND ($5::timestamptz IS NULL OR e.created_at >= $5) AND ($6::timestamptz IS NULL OR e.created_at < $6)
             ORDER BY e.written_by, e.id LIMIT $7)
            UNION ALL
            SELECT id FROM of_object
        )
        SELECT e.id, e.payload FROM behind CROSS JOIN chosen JOIN events e ON e.account_id = $1 AND e.id = chosen.id
        WHERE NOT e.is_test AND e.written_by < behind.oldest_running
            AND (e.written_by, e.id) > (behind.written_by, $2) AND ($3::text IS NULL OR e.type = $3)
            AND ($5::timestamptz IS NULL OR e.created_at >= $5) AND ($6::timestamptz IS NULL OR e.created_at < $6)
        ORDER BY e.written_by, e.id LIMIT $7
        """,
        account_id,
        after or _BEFORE_ALL,
        *_parameters(wanted),
        limit,
    )
    return [(row["id"], row["payload"]) for row in rows]


def _parameters(wanted: EventFilter) -> tuple[object, ...]:
    beyond = wanted.created_to + _MILLISECOND if wanted.created_to else None
    return wanted.event_type, wanted.object_id, wanted.created_from, beyond


async def find_payload(conn: Connection, account_id: int, event_id: uuid.UUID) -> bytes | None:
    payload: bytes | None = await conn.fetchval(
        "SELECT payload FROM events WHERE account_id = $1 AND id = $2", account_id, event_id
    )
    return payload


async def insert_test_event(conn: Connection, event: Event) -> None:
    """Write an event that tells of nothing that happened: no endpoint gets it by itself, and no feed shows it."""
    await conn.execute(
        """
        INSERT INTO events (account_id, id, object_id, sequence, type, created_at, payload, is_test)
        VALUES ($1, $2, $3, $4, $5, $6, $7, true)
        """,
        event.account_id,
        event.id,
        event.object_id,
        event.sequence,
        event.type.value,
        event.created_at,
        event.payload,
    )
