"""SQL of the dashboard's balance: whose charges the entries book."""

import uuid
from collections.abc import Sequence

from zembil.db.pool import Connection


async def payments_of_charges(
    conn: Connection, account_id: int, charge_ids: Sequence[uuid.UUID]
) -> dict[uuid.UUID, uuid.UUID]:
    """The payment of each of these charges."""
    rows = await conn.fetch(
        "SELECT id, payment_id FROM charges WHERE account_id = $1 AND id = ANY ($2)", account_id, charge_ids
    )
    return {row["id"]: row["payment_id"] for row in rows}
