"""SQL of the payer's pages: what a link opens, and how watched payments stand."""

import uuid
from collections.abc import Sequence

from zembil.checkout.standing import Standing
from zembil.db.pool import Connection, Record

Key = tuple[int, uuid.UUID]
"""The account and the id of a payment."""

_STANDINGS = """
    SELECT p.account_id, p.id, p.link_secret, p.status, p.sequence, p.refunded_santim, c.id AS charge_id,
        c.state AS charge_state
    FROM unnest($1::bigint[], $2::uuid[]) AS asked (account_id, payment_id)
    JOIN payments p ON p.account_id = asked.account_id AND p.id = asked.payment_id
    LEFT JOIN LATERAL (
        SELECT id, state FROM charges
        WHERE account_id = p.account_id AND payment_id = p.id ORDER BY id DESC LIMIT 1
    ) c ON true
"""


async def find_standings(conn: Connection, keys: Sequence[Key]) -> dict[Key, Standing]:
    """How payments stand now; those that are not there are left out."""
    rows = await conn.fetch(_STANDINGS, [account for account, _ in keys], [payment for _, payment in keys])
    return {(row["account_id"], row["id"]): _standing(row) for row in rows}


async def find_standing(conn: Connection, key: Key) -> tuple[Standing, bytes] | None:
    """How a payment stands now, and the secret of its link."""
    row = await conn.fetchrow(_STANDINGS, [key[0]], [key[1]])
    return None if row is None else (_standing(row), row["link_secret"])


def _standing(row: Record) -> Standing:
    return Standing(row["status"], row["sequence"], row["refunded_santim"], row["charge_id"], row["charge_state"])
