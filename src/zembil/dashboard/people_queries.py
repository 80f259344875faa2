"""SQL for the names behind ids: of people, also those who have left, and of keys, also those that are revoked."""

import uuid

from zembil import ids
from zembil.db.pool import Connection
from zembil.ids import Prefix


async def names_of_people(conn: Connection, merchant_id: uuid.UUID) -> dict[str, str]:
    """The names of everybody who is or was in a merchant's team, by id as it is shown."""
    rows = await conn.fetch("SELECT id, name FROM users WHERE merchant_id = $1", merchant_id)
    return {ids.shown(Prefix.USER, row["id"]): row["name"] for row in rows}


async def names_of_keys(conn: Connection, account_id: int, key_ids: list[uuid.UUID]) -> dict[uuid.UUID, str]:
    """The names of those of the ids that are keys of the account."""
    rows = await conn.fetch(
        "SELECT id, name FROM api_keys WHERE account_id = $1 AND id = ANY ($2)", account_id, key_ids
    )
    return {row["id"]: row["name"] for row in rows}


async def count_keys_of(conn: Connection, user_id: uuid.UUID) -> int:
    """How many keys that were made in somebody's name still open something."""
    count: int = await conn.fetchval(
        """
        SELECT count(*) FROM api_keys
        WHERE user_id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
        """,
        user_id,
    )
    return count
