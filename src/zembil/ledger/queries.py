"""SQL for ledger entries and balances."""

import uuid
from collections.abc import Sequence

from zembil.db.pool import Connection
from zembil.ledger.model import Balance, Entry, EntryKind, LedgerAccount

# Balances of an account are kept in so many rows, so that postings seldom wait for each other. A transaction keeps to
# one slot: two that post several entries in slots of their own choice each time could wait for each other for ever.
_SLOTS = 16


async def insert_entries(conn: Connection, entries: Sequence[Entry]) -> None:
    """Post entries and keep the balances, in one statement. Posting the same fact twice is a UniqueViolation."""
    await conn.execute(
        """
        WITH posted AS (
            INSERT INTO ledger_entries (account_id, id, source_id, kind, debit, credit, amount_santim, created_at)
            SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::bigint[],
                                 $8::timestamptz[])
            RETURNING account_id, debit, credit, amount_santim
        ), moved AS (
            SELECT account_id, debit AS ledger_account, amount_santim AS debit_santim, 0 AS credit_santim FROM posted
            UNION ALL
            SELECT account_id, credit, 0, amount_santim FROM posted
        )
        INSERT INTO ledger_balances AS b (account_id, ledger_account, slot, debit_santim, credit_santim)
        SELECT account_id, ledger_account, pg_current_xact_id()::text::bigint % $9,
            sum(debit_santim), sum(credit_santim)
        FROM moved GROUP BY account_id, ledger_account ORDER BY account_id, ledger_account
        ON CONFLICT (account_id, ledger_account, slot) DO UPDATE
        SET debit_santim = b.debit_santim + excluded.debit_santim,
            credit_santim = b.credit_santim + excluded.credit_santim
        """,
        [entry.account_id for entry in entries],
        [entry.id for entry in entries],
        [entry.source_id for entry in entries],
        [entry.kind.value for entry in entries],
        [entry.debit.value for entry in entries],
        [entry.credit.value for entry in entries],
        [entry.amount_santim for entry in entries],
        [entry.created_at for entry in entries],
        _SLOTS,
    )


async def find_balance(conn: Connection, account_id: int) -> Balance:
    rows = await conn.fetch(
        """
        SELECT ledger_account, sum(credit_santim - debit_santim)::bigint AS santim
        FROM ledger_balances WHERE account_id = $1 GROUP BY ledger_account
        """,
        account_id,
    )
    held: dict[str, int] = {row["ledger_account"]: row["santim"] for row in rows}
    return Balance(
        held.get(LedgerAccount.MERCHANT_BALANCE, 0),
        held.get(LedgerAccount.REFUNDS_IN_TRANSIT, 0),
        held.get(LedgerAccount.UNALLOCATED, 0),
    )


async def list_entries(conn: Connection, account_id: int, *, before: uuid.UUID | None, limit: int) -> list[Entry]:
    """Newest first, older than the entry `before`."""
    rows = await conn.fetch(
        """
        SELECT id, source_id, kind, debit, credit, amount_santim, created_at FROM ledger_entries
        WHERE account_id = $1 AND ($2::uuid IS NULL OR id < $2) ORDER BY id DESC LIMIT $3
        """,
        account_id,
        before,
        limit,
    )
    return [
        Entry(
            account_id=account_id,
            id=row["id"],
            source_id=row["source_id"],
            kind=EntryKind(row["kind"]),
            debit=LedgerAccount(row["debit"]),
            credit=LedgerAccount(row["credit"]),
            amount_santim=row["amount_santim"],
            created_at=row["created_at"],
        )
        for row in rows
    ]
