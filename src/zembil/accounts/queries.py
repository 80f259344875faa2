"""SQL for merchants, accounts and keys."""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

from zembil.accounts.model import Account, ApiKey, LateMoney, Principal, Role
from zembil.db.pool import Connection, Record


async def insert_merchant(conn: Connection, merchant_id: uuid.UUID, name: str) -> None:
    await conn.execute("INSERT INTO merchants (id, name) VALUES ($1, $2)", merchant_id, name)


async def insert_user(conn: Connection, user_id: uuid.UUID, merchant_id: uuid.UUID, *, name: str, role: Role) -> None:
    await conn.execute(
        "INSERT INTO users (id, merchant_id, name, role) VALUES ($1, $2, $3, $4)",
        user_id,
        merchant_id,
        name,
        role.value,
    )


async def insert_account(conn: Connection, merchant_id: uuid.UUID, *, livemode: bool) -> int:
    """Open an account; one may approve one's own refunds in a sandbox only."""
    account_id: int = await conn.fetchval(
        "INSERT INTO accounts (merchant_id, livemode, allow_self_approval) VALUES ($1, $2, NOT $2) RETURNING id",
        merchant_id,
        livemode,
    )
    return account_id


async def insert_api_key(conn: Connection, key: ApiKey, *, secret_hash: bytes) -> None:
    await conn.execute(
        """
        INSERT INTO api_keys (secret_hash, id, account_id, user_id, name, role, last_four, expires_at, rate_limit)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        """,
        secret_hash,
        key.id,
        key.account_id,
        key.user_id,
        key.name,
        key.role.value,
        key.last_four,
        key.expires_at,
        key.rate_limit,
    )


_ACCOUNT = """
    a.id, a.livemode, a.clock_offset, a.late_money, a.allow_self_approval, a.payment_lifetime_seconds,
    m.name, m.name_am, m.time_zone
"""
_OF_ACCOUNT = "SELECT" + _ACCOUNT + "FROM accounts a JOIN merchants m ON m.id = a.merchant_id "


async def find_principal(conn: Connection, secret_hash: bytes) -> Principal | None:
    row = await conn.fetchrow(
        "SELECT k.id AS key_id, k.user_id, k.role, k.expires_at, k.rate_limit, k.last_used_at,"
        + _ACCOUNT
        + """
        FROM api_keys k JOIN accounts a ON a.id = k.account_id JOIN merchants m ON m.id = a.merchant_id
        WHERE k.secret_hash = $1 AND k.revoked_at IS NULL
        """,
        secret_hash,
    )
    if row is None:
        return None
    return Principal(
        _account(row),
        row["key_id"],
        row["user_id"],
        Role(row["role"]),
        row["expires_at"],
        row["rate_limit"],
        row["last_used_at"],
    )


async def record_use(conn: Connection, key_id: uuid.UUID) -> None:
    """Remember that a key was used, to the minute."""
    await conn.execute(
        """
        UPDATE api_keys SET last_used_at = now()
        WHERE id = $1 AND (last_used_at IS NULL OR last_used_at <= now() - interval '1 minute')
        """,
        key_id,
    )


async def lock_account(conn: Connection, account_id: int) -> None:
    """Hold an account's row until the transaction ends: who changes its keys does so one after the other."""
    await conn.execute("SELECT 1 FROM accounts WHERE id = $1 FOR NO KEY UPDATE", account_id)


_KEY_COLUMNS = "account_id, id, user_id, name, role, last_four, expires_at, rate_limit, last_used_at"


async def find_api_key(conn: Connection, account_id: int, key_id: uuid.UUID) -> ApiKey | None:
    """A key that is not revoked."""
    row = await conn.fetchrow(
        "SELECT " + _KEY_COLUMNS + " FROM api_keys WHERE account_id = $1 AND id = $2 AND revoked_at IS NULL",
        account_id,
        key_id,
    )
    return None if row is None else _api_key(row)


async def list_api_keys(
    conn: Connection, account_id: int, *, before: uuid.UUID | None, limit: int, offset: int
) -> tuple[list[ApiKey], int]:
    """Keys that are not revoked: newest first, older than `before`; and how many there are in all."""
    rows = await conn.fetch(
        "WITH found AS (SELECT "
        + _KEY_COLUMNS
        + """ FROM api_keys WHERE account_id = $1 AND revoked_at IS NULL
        ), listed AS (
            SELECT * FROM found WHERE $2::uuid IS NULL OR id < $2 ORDER BY id DESC LIMIT $3 OFFSET $4
        )
        SELECT total.total, listed.* FROM (SELECT count(*) AS total FROM found) total LEFT JOIN listed ON true
        ORDER BY listed.id DESC
        """,
        account_id,
        before,
        limit,
        offset,
    )
    return [_api_key(row) for row in rows if row["id"] is not None], rows[0]["total"]


async def has_another_admin_key(conn: Connection, key: ApiKey, *, at: datetime) -> bool:
    """Whether the account keeps an admin key without this one, now."""
    return bool(
        await conn.fetchval(
            """
            SELECT true FROM api_keys
            WHERE account_id = $1 AND id <> $2 AND role = 'admin' AND revoked_at IS NULL
                AND (expires_at IS NULL OR expires_at > $3)
            LIMIT 1
            """,
            key.account_id,
            key.id,
            at,
        )
    )


async def update_key_expiry(conn: Connection, key: ApiKey) -> None:
    await conn.execute(
        "UPDATE api_keys SET expires_at = $3 WHERE account_id = $1 AND id = $2", key.account_id, key.id, key.expires_at
    )


async def revoke_api_key(conn: Connection, account_id: int, key_id: uuid.UUID) -> None:
    await conn.execute(
        "UPDATE api_keys SET revoked_at = now() WHERE account_id = $1 AND id = $2 AND revoked_at IS NULL",
        account_id,
        key_id,
    )


async def find_account(conn: Connection, account_id: int) -> Account | None:
    row = await conn.fetchrow(
        _OF_ACCOUNT + "WHERE a.id = $1",
        account_id,
    )
    return None if row is None else _account(row)


async def find_account_of(conn: Connection, merchant_id: uuid.UUID, *, livemode: bool) -> Account | None:
    row = await conn.fetchrow(
        _OF_ACCOUNT + "WHERE a.merchant_id = $1 AND a.livemode = $2",
        merchant_id,
        livemode,
    )
    return None if row is None else _account(row)


async def list_account_ids(conn: Connection, merchant_id: uuid.UUID) -> list[int]:
    rows = await conn.fetch("SELECT id FROM accounts WHERE merchant_id = $1 ORDER BY id", merchant_id)
    return [row["id"] for row in rows]


async def list_accounts(conn: Connection, account_ids: Sequence[int]) -> dict[int, Account]:
    rows = await conn.fetch(
        _OF_ACCOUNT + "WHERE a.id = ANY ($1)",
        account_ids,
    )
    return {row["id"]: _account(row) for row in rows}


async def get_merchant_id(conn: Connection, account_id: int) -> uuid.UUID:
    merchant_id: uuid.UUID = await conn.fetchval("SELECT merchant_id FROM accounts WHERE id = $1", account_id)
    return merchant_id


async def update_merchant(
    conn: Connection, merchant_id: uuid.UUID, *, name: str, name_am: str | None, time_zone: str
) -> None:
    await conn.execute(
        "UPDATE merchants SET name = $2, name_am = $3, time_zone = $4 WHERE id = $1",
        merchant_id,
        name,
        name_am,
        time_zone,
    )


async def update_account(
    conn: Connection, account_id: int, *, late_money: LateMoney, payment_lifetime_seconds: int
) -> None:
    await conn.execute(
        "UPDATE accounts SET late_money = $2, payment_lifetime_seconds = $3 WHERE id = $1",
        account_id,
        late_money.value,
        payment_lifetime_seconds,
    )


async def update_self_approval(conn: Connection, account_id: int, *, allowed: bool) -> None:
    """Settle who may approve refunds; whoever asked for it asks no more."""
    await conn.execute(
        """
        UPDATE accounts SET allow_self_approval = $2, self_approval_asked_by = NULL, self_approval_asked_at = NULL
        WHERE id = $1
        """,
        account_id,
        allowed,
    )


async def update_self_approval_asked(conn: Connection, account_id: int, user_id: uuid.UUID | None) -> None:
    await conn.execute(
        """
        UPDATE accounts SET self_approval_asked_by = $2::uuid,
            self_approval_asked_at = CASE WHEN $2::uuid IS NOT NULL THEN now() END
        WHERE id = $1
        """,
        account_id,
        user_id,
    )


async def find_self_approval_asked(conn: Connection, account_id: int) -> uuid.UUID | None:
    user_id: uuid.UUID | None = await conn.fetchval(
        "SELECT self_approval_asked_by FROM accounts WHERE id = $1", account_id
    )
    return user_id


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


def _api_key(row: Record) -> ApiKey:
    return ApiKey(
        account_id=row["account_id"],
        id=row["id"],
        user_id=row["user_id"],
        name=row["name"],
        role=Role(row["role"]),
        last_four=row["last_four"],
        expires_at=row["expires_at"],
        rate_limit=row["rate_limit"],
        last_used_at=row["last_used_at"],
    )


def _account(row: Record) -> Account:
    return Account(
        row["id"],
        row["name"],
        row["livemode"],
        row["clock_offset"],
        LateMoney(row["late_money"]),
        row["allow_self_approval"],
        row["name_am"],
        row["time_zone"],
        row["payment_lifetime_seconds"],
    )


def expired(principal: Principal, *, at: datetime) -> bool:
    return principal.expires_at is not None and principal.expires_at <= at
