"""SQL for refunds."""

import uuid
from datetime import datetime, timedelta

from zembil.db.pool import Connection, Record
from zembil.refunds.model import SENT_STATES, Refund, RefundState, RefundStatus
from zembil.wire import read_back

_COLUMNS = """
    r.account_id, r.id, r.payment_id, r.charge_id, r.of_surplus, r.amount_santim, r.state, r.reason, r.metadata,
    r.failure_code, r.failure_message, r.raw_code, r.rail_reference, r.requested_by, r.approved_by, r.self_approval,
    r.approved_at, r.submitted_at, r.taken_at, r.completed_at, r.sequence, r.ask_at, r.asked,
    r.sent_in_vain, r.late_success_at
"""


async def insert_refund(conn: Connection, refund: Refund) -> None:
    await conn.execute(
        """
        INSERT INTO refunds (account_id, id, payment_id, charge_id, of_surplus, amount_santim, state, reason, metadata,
                             requested_by, approved_by, self_approval, approved_at, sequence, ask_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
        """,
        refund.account_id,
        refund.id,
        refund.payment_id,
        refund.charge_id,
        refund.of_surplus,
        refund.amount_santim,
        refund.state.value,
        refund.reason,
        None if refund.metadata is None else bytes(refund.metadata).decode(),
        refund.requested_by,
        refund.approved_by,
        refund.self_approval,
        refund.approved_at,
        refund.sequence,
        refund.ask_at,
    )


async def update_refund(conn: Connection, refund: Refund) -> None:
    """Write what changes in a refund's life; its row is held."""
    await conn.execute(
        """
        UPDATE refunds
        SET state = $3, failure_code = $4, failure_message = $5, raw_code = $6, rail_reference = $7, approved_by = $8,
            self_approval = $9, approved_at = $10, completed_at = $11, sequence = $12, ask_at = $13, asked = $14,
            submitted_at = $15, taken_at = $16, sent_in_vain = $17, late_success_at = $18
        WHERE account_id = $1 AND id = $2
        """,
        refund.account_id,
        refund.id,
        refund.state.value,
        refund.failure_code,
        refund.failure_message,
        refund.raw_code,
        refund.rail_reference,
        refund.approved_by,
        refund.self_approval,
        refund.approved_at,
        refund.completed_at,
        refund.sequence,
        refund.ask_at,
        refund.asked,
        refund.submitted_at,
        refund.taken_at,
        refund.sent_in_vain,
        refund.late_success_at,
    )


async def reserve(conn: Connection, account_id: int, payment_id: uuid.UUID, *, amount_santim: int) -> bool:
    """Reserve an amount of a completed payment for a refund, if so much is left; answers whether it was."""
    done = await conn.execute(
        """
        UPDATE payments SET reserved_santim = reserved_santim + $3
        WHERE account_id = $1 AND id = $2 AND status = 'completed' AND reserved_santim + $3 <= amount_santim
        """,
        account_id,
        payment_id,
        amount_santim,
    )
    return done == "UPDATE 1"


async def release(conn: Connection, refund: Refund) -> None:
    """Free what a refund that failed had reserved."""
    await conn.execute(
        "UPDATE payments SET reserved_santim = reserved_santim - $3 WHERE account_id = $1 AND id = $2",
        refund.account_id,
        refund.payment_id,
        refund.amount_santim,
    )


async def count_as_refunded(conn: Connection, refund: Refund) -> None:
    """Add a completed refund to its payment's amount_refunded."""
    await conn.execute(
        "UPDATE payments SET refunded_santim = refunded_santim + $3 WHERE account_id = $1 AND id = $2",
        refund.account_id,
        refund.payment_id,
        refund.amount_santim,
    )


async def find_refund(conn: Connection, account_id: int, refund_id: uuid.UUID) -> Refund | None:
    row = await conn.fetchrow(
        "SELECT" + _COLUMNS + "FROM refunds r WHERE r.account_id = $1 AND r.id = $2", account_id, refund_id
    )
    return None if row is None else _refund(row)


async def lock_refund(conn: Connection, account_id: int, refund_id: uuid.UUID) -> Refund | None:
    """Read a refund and hold its row until the transaction ends."""
    row = await conn.fetchrow(
        "SELECT" + _COLUMNS + "FROM refunds r WHERE r.account_id = $1 AND r.id = $2 FOR NO KEY UPDATE",
        account_id,
        refund_id,
    )
    return None if row is None else _refund(row)


_STATES: dict[RefundStatus, list[str]] = {
    status: [status.value] + ([state.value for state in SENT_STATES] if status is RefundStatus.APPROVED else [])
    for status in RefundStatus
}


async def list_refunds(
    conn: Connection,
    account_id: int,
    *,
    payment_id: uuid.UUID | None,
    status: RefundStatus | None,
    before: uuid.UUID | None,
    limit: int,
    offset: int,
) -> tuple[list[Refund], int]:
    """Newest first, older than the refund `before`, and how many there are in all, both of one snapshot."""
    # Planned twice, for what each needs: the total reads an index alone, the page no more rows than it has.
    rows = await conn.fetch(
        "WITH found AS NOT MATERIALIZED (SELECT"
        + _COLUMNS
        + """
            FROM refunds r
            WHERE r.account_id = $1 AND ($2::uuid IS NULL OR r.payment_id = $2)
                AND ($3::text[] IS NULL OR r.state = ANY ($3))
        ), listed AS (
            SELECT * FROM found WHERE $4::uuid IS NULL OR id < $4 ORDER BY id DESC LIMIT $5 OFFSET $6
        )
        SELECT total.total, listed.* FROM (SELECT count(*) AS total FROM found) total LEFT JOIN listed ON true
        ORDER BY listed.id DESC
        """,
        account_id,
        payment_id,
        None if status is None else _STATES[status],
        before,
        limit,
        offset,
    )
    return [_refund(row) for row in rows if row["id"] is not None], rows[0]["total"]


async def list_unreturned_surplus(conn: Connection, *, limit: int) -> list[tuple[int, uuid.UUID]]:
    """Charges, by account and id, whose money came without being a payment's and is not yet being returned."""
    rows = await conn.fetch(
        """
        SELECT c.account_id, c.id FROM charges c
        WHERE c.state = 'surplus' AND NOT EXISTS (
            SELECT 1 FROM refunds r WHERE r.account_id = c.account_id AND r.charge_id = c.id AND r.of_surplus
        )
        LIMIT $1
        """,
        limit,
    )
    return [(row["account_id"], row["id"]) for row in rows]


async def has_surplus_refund(conn: Connection, account_id: int, charge_id: uuid.UUID, *, failed_too: bool) -> bool:
    """Whether the money of a surplus charge goes back, or was once tried to."""
    return bool(
        await conn.fetchval(
            """
            SELECT true FROM refunds
            WHERE account_id = $1 AND charge_id = $2 AND of_surplus AND ($3 OR state <> 'failed') LIMIT 1
            """,
            account_id,
            charge_id,
            failed_too,
        )
    )


async def claim_due_refunds(conn: Connection, *, at: datetime, again_at: datetime, limit: int) -> list[Refund]:
    """Refunds to be sent or asked about now, as they were; if we die meanwhile, they are due again at `again_at`."""
    rows = await conn.fetch(
        "UPDATE refunds r SET ask_at = $2 FROM ("
        "SELECT account_id, id FROM refunds WHERE ask_at <= $1 ORDER BY ask_at LIMIT $3 FOR UPDATE SKIP LOCKED"
        ") due WHERE r.account_id = due.account_id AND r.id = due.id RETURNING" + _COLUMNS,
        at,
        again_at,
        limit,
    )
    return [_refund(row) for row in rows]


async def advance_due_times(conn: Connection, account_id: int, *, by: timedelta) -> None:
    """The account's clock moved forward: what its refunds wait for comes nearer."""
    await conn.execute(
        "UPDATE refunds SET ask_at = ask_at - $2::interval WHERE account_id = $1 AND ask_at IS NOT NULL", account_id, by
    )


def _refund(row: Record) -> Refund:
    metadata: str | None = row["metadata"]
    return Refund(
        account_id=row["account_id"],
        id=row["id"],
        payment_id=row["payment_id"],
        charge_id=row["charge_id"],
        of_surplus=row["of_surplus"],
        amount_santim=row["amount_santim"],
        state=RefundState(row["state"]),
        reason=row["reason"],
        metadata=None if metadata is None else read_back(metadata),
        failure_code=row["failure_code"],
        failure_message=row["failure_message"],
        raw_code=row["raw_code"],
        rail_reference=row["rail_reference"],
        requested_by=row["requested_by"],
        approved_by=row["approved_by"],
        self_approval=row["self_approval"],
        approved_at=row["approved_at"],
        submitted_at=row["submitted_at"],
        taken_at=row["taken_at"],
        completed_at=row["completed_at"],
        sequence=row["sequence"],
        ask_at=row["ask_at"],
        asked=row["asked"],
        sent_in_vain=row["sent_in_vain"],
        late_success_at=row["late_success_at"],
    )
