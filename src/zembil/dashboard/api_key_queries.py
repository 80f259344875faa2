"""SQL for what a key was used for."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from zembil import ids
from zembil.db.pool import Connection


@dataclass(frozen=True, slots=True)
class Use:
    """What a key asked for, how often, and the latest request of the kind."""

    call: str
    count: int
    latest: uuid.UUID


async def list_uses(
    conn: Connection, account_id: int, key_id: uuid.UUID, *, since: datetime, requests_max: int
) -> Sequence[Use]:
    """What a key was used for since an instant, most frequent first, among the account's latest requests."""
    rows = await conn.fetch(
        """
        WITH latest AS (
            SELECT id, key_id, method, path FROM api_requests
            WHERE account_id = $1 AND id >= $3 ORDER BY id DESC LIMIT $4
        )
        SELECT method || ' ' || regexp_replace(path, '[a-z]{3}_[0-9a-z]{26}', '…', 'g') AS call,
            count(*) AS count, (array_agg(id ORDER BY id DESC))[1] AS latest
        FROM latest WHERE key_id = $2 GROUP BY call ORDER BY count DESC, call LIMIT 10
        """,
        account_id,
        key_id,
        ids.id_at(since),
        requests_max,
    )
    return [Use(row["call"], row["count"], row["latest"]) for row in rows]
