"""SQL of the sandbox's tools."""

import uuid

from zembil.db.pool import Connection
from zembil.webhooks.model import EventType


async def get_payload(conn: Connection, account_id: int, object_id: uuid.UUID, event_type: EventType) -> bytes:
    """The last event of this type about an object, as every receiver gets it. Raises LookupError."""
    payload: bytes | None = await conn.fetchval(
        """
        SELECT payload FROM events WHERE account_id = $1 AND object_id = $2 AND type = $3
        ORDER BY sequence DESC LIMIT 1
        """,
        account_id,
        object_id,
        event_type.value,
    )
    if payload is None:
        raise LookupError(f"no {event_type.value} was told of this object")
    return payload
