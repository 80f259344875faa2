"""SQL for merchants, accounts and keys."""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

from zembil.accounts.model import Account, Principal, Role
from zembil.db.pool import Connection, Record


async def insert_merchant(conn: Connection, merchant_id: uuid.UUID, name: str) -> None:
    await conn.execute("INSERT INTO merchants (id, name) VALUES ($1, $2)", merchant_id, name)


async def insert_account(conn: Connection, merchant_id: uuid.UUID, *, livemode: bool) -> int:
    account_id: int = await conn.fetchval(
        "INSERT INTO accounts (merchant_id, livemode) VALUES ($1, $2) RETURNING id", merchant_id, livemode
    )
    return account_id


async def insert_api_key(
    conn: Connection, *, key_id: uuid.UUID, account_id: int, secret_hash: bytes, name: str, role: Role, last_four: str
) -> None:
    await conn.execute(
        """
        INSERT INTO api_keys (secret_hash, id, account_id, name, role, last_four)
        VALUES ($1, $2, $3, $4, $5, $6)
        """,
        secret_hash,
        key_id,
        account_id,
        name,
        role.value,
        last_four,
    )


async def find_principal(conn: Connection, secret_hash: bytes) -> Principal | None:
    row = await conn.fetchrow(
        """
        SELECT k.id AS key_id, k.role, k.expires_at, a.id, a.livemode, a.clock_offset, m.name
        FROM api_keys k JOIN accounts a ON a.id = k.account_id JOIN merchants m ON m.id = a.merchant_id
        WHERE k.secret_hash = $1 AND k.revoked_at IS NULL
        """,
        secret_hash,
    )
    if row is None:
        return None
    return Principal(_account(row), row["key_id"], Role(row["role"]), row["expires_at"])


async def find_account(conn: Connection, account_id: int) -> Account | None:
    row = await conn.fetchrow(
        """
        SELECT a.id, a.livemode, a.clock_offset, m.name
        FROM accounts a JOIN merchants m ON m.id = a.merchant_id
        WHERE a.id = $1
        """,
        account_id,
    )
    return None if row is None else _account(row)


async def list_accounts(conn: Connection, account_ids: Sequence[int]) -> dict[int, Account]:
    rows = await conn.fetch(
        """
        SELECT a.id, a.livemode, a.clock_offset, m.name
        FROM accounts a JOIN merchants m ON m.id = a.merchant_id
        WHERE a.id = ANY ($1)
        """,
        account_ids,
    )
    return {row["id"]: _account(row) for row in rows}


async def update_clock(conn: Connection, account_id: int, *, advance_seconds: int) -> timedelta:
    """Move a sandbox's clock forward; answers its new offset."""
    offset: timedelta = await conn.fetchval(
        """
        UPDATE accounts SET clock_offset = clock_offset + make_interval(secs => $2), clock_advanced_at = now()
        WHERE id = $1 AND NOT livemode
        RETURNING clock_offset
        """,
        account_id,
        float(advance_seconds),
    )
    return offset


def _account(row: Record) -> Account:
    return Account(row["id"], row["name"], row["livemode"], row["clock_offset"])


def expired(principal: Principal, *, at: datetime) -> bool:
    return principal.expires_at is not None and principal.expires_at <= at
