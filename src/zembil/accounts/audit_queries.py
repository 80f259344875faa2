"""SQL for the audit log: entries are written once, and sealed in a chain afterwards."""

import uuid
from dataclasses import dataclass
from typing import LiteralString

from zembil.accounts.model import AuditEntry
from zembil.db.pool import Connection
from zembil.wire import encoded

# What the seal of an entry `e` holds it to, without a second way to read it.
AUDIT_FACTS: LiteralString = """
    convert_to(jsonb_build_array(
        e.account_id, e.id, e.actor_kind, e.actor, e.key_id, e.action, e.object, e.details
    )::text, 'UTF8')
"""


_SEAL_ENTRIES = (
    """
    WITH RECURSIVE fresh AS (
        SELECT id, row_number() OVER (ORDER BY id) AS place, """
    + AUDIT_FACTS
    + """ AS facts
        FROM audit_entries e WHERE account_id = $1 AND number IS NULL ORDER BY id LIMIT $2
    ), ended AS (
        SELECT number, seal FROM audit_entries
        WHERE account_id = $1 AND number IS NOT NULL ORDER BY number DESC LIMIT 1
    ), chain (place, id, number, seal) AS (
        SELECT 0::bigint, NULL::uuid, coalesce((SELECT number FROM ended), 0),
            coalesce((SELECT seal FROM ended), ''::bytea)
        UNION ALL
        SELECT f.place, f.id, c.number + 1, sha256(c.seal || f.facts)
        FROM chain c JOIN fresh f ON f.place = c.place + 1
    ), sealed AS (
        UPDATE audit_entries e SET number = c.number, seal = c.seal FROM chain c
        WHERE e.account_id = $1 AND e.id = c.id
        RETURNING e.id, e.number, e.seal
    )
    SELECT id, number, seal FROM sealed ORDER BY number DESC LIMIT 1
    """
)


async def insert_audit_entry(conn: Connection, entry: AuditEntry) -> None:
    await conn.execute(
        """
        INSERT INTO audit_entries (account_id, id, actor_kind, actor, key_id, action, object, details)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        """,
        entry.account_id,
        entry.id,
        entry.actor.kind.value,
        entry.actor.name,
        entry.actor.key_id,
        entry.action.value,
        entry.object,
        encoded(entry.details).decode(),
    )


async def list_accounts_to_seal(conn: Connection, *, limit: int) -> list[int]:
    """Accounts with entries that are not in their chain yet."""
    rows = await conn.fetch(
        "SELECT DISTINCT account_id FROM audit_entries WHERE number IS NULL ORDER BY account_id LIMIT $1", limit
    )
    return [row["account_id"] for row in rows]


@dataclass(frozen=True, slots=True)
class Seal:
    """The end of an account's chain."""

    entry_id: uuid.UUID
    number: int
    seal: bytes


async def seal_entries(conn: Connection, account_id: int, *, limit: int) -> Seal | None:
    """Put entries at the end of their account's chain; answers its new end. The account's row is held.

    Their order is that in which they are found: an older entry whose transaction took longer comes later.
    """
    row = await conn.fetchrow(_SEAL_ENTRIES, account_id, limit)
    return None if row is None else Seal(row["id"], row["number"], row["seal"])
