"""SQL for charges and refunds in doubt, and for what must add up."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString

from zembil import money
from zembil.accounts.audit_queries import AUDIT_FACTS
from zembil.db.pool import Connection, Record
from zembil.payments.lifecycle import AMOUNT_DIFFERS, RECEIPT_OF_ANOTHER
from zembil.payments.model import ChargeState
from zembil.rails.rail import Wallet
from zembil.refunds.model import RefundState

_ASKED = "the wallet is being asked"
_NEVER_TOLD = "the wallet never told"
_WHYS = {
    AMOUNT_DIFFERS: "another amount was moved",
    RECEIPT_OF_ANOTHER: "the wallet names the receipt of another charge",
    "not_sent": "the wallet could not be reached",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtfulCharge:
    """A charge of which nobody knows what became."""

    account_id: int
    id: uuid.UUID
    payment_id: uuid.UUID
    amount_santim: int
    state: ChargeState
    rail: Wallet
    phone: str
    asked: int
    ask_at: datetime | None  # in the database's time; None: it stands with the operator
    clock_offset_seconds: float
    raw_code: str | None
    received_santim: int | None  # of another amount than the payment's

    @property
    def why(self) -> str:
        """Why it is in doubt, in words."""
        if self.state is ChargeState.IN_DOUBT:
            return _ASKED
        if self.received_santim is not None:
            return f"another amount came: {money.shown(self.received_santim)} {money.CURRENCY}"
        return _WHYS.get(self.raw_code or "", _NEVER_TOLD)


_DOUBTFUL = """
    SELECT c.account_id, c.id, c.payment_id, p.amount_santim, c.state, c.rail, c.phone, c.asked, c.ask_at, c.raw_code,
        c.received_santim,
        extract(epoch FROM a.clock_offset)::float8 AS clock_offset_seconds
    FROM charges c
        JOIN payments p ON p.account_id = c.account_id AND p.id = c.payment_id
        JOIN accounts a ON a.id = c.account_id
    WHERE c.state IN ('in_doubt', 'needs_review')
"""


async def list_doubtful_charges(
    conn: Connection, account_id: int, *, before: uuid.UUID | None, limit: int
) -> list[DoubtfulCharge]:
    """Those of an account, newest first, older than `before`."""
    rows = await conn.fetch(
        _DOUBTFUL + "AND c.account_id = $1 AND ($2::uuid IS NULL OR c.id < $2) ORDER BY c.id DESC LIMIT $3",
        account_id,
        before,
        limit,
    )
    return [_doubtful(row) for row in rows]


async def list_doubtful_charges_of_all(conn: Connection, *, limit: int) -> list[DoubtfulCharge]:
    """The operator's queue: those of every account, oldest first."""
    rows = await conn.fetch(_DOUBTFUL + "ORDER BY c.id LIMIT $1", limit)
    return [_doubtful(row) for row in rows]


async def find_doubtful_charge(conn: Connection, charge_id: uuid.UUID) -> DoubtfulCharge | None:
    row = await conn.fetchrow(_DOUBTFUL + "AND c.id = $1", charge_id)
    return None if row is None else _doubtful(row)


def _doubtful(row: Record) -> DoubtfulCharge:
    return DoubtfulCharge(
        account_id=row["account_id"],
        id=row["id"],
        payment_id=row["payment_id"],
        amount_santim=row["amount_santim"],
        state=ChargeState(row["state"]),
        rail=Wallet(row["rail"]),
        phone=row["phone"],
        asked=row["asked"],
        ask_at=row["ask_at"],
        clock_offset_seconds=row["clock_offset_seconds"],
        raw_code=row["raw_code"],
        received_santim=row["received_santim"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtfulRefund:
    """A refund of which nobody knows what became, or of which what is known leaves money where it does not belong."""

    account_id: int
    id: uuid.UUID
    payment_id: uuid.UUID
    amount_santim: int
    state: RefundState
    rail: Wallet
    phone: str
    ask_at: datetime | None
    raw_code: str | None
    has_late_success: bool

    @property
    def why(self) -> str:
        """Why it is in doubt, in words."""
        if self.has_late_success:
            return "the wallet says it was paid after it had failed"
        if self.state is RefundState.FAILED:
            return "money that is no payment's was not returned"
        return _ASKED if self.state is RefundState.IN_DOUBT else _WHYS.get(self.raw_code or "", _NEVER_TOLD)


# A surplus that failed to go back is in doubt until it is tried again; from then on the new refund is.
_DOUBTFUL_REFUNDS = """
    SELECT r.account_id, r.id, r.payment_id, r.amount_santim, r.state, c.rail, c.phone, r.ask_at, r.raw_code,
        r.late_success_at IS NOT NULL AS has_late_success
    FROM refunds r JOIN charges c ON c.account_id = r.account_id AND c.id = r.charge_id
    WHERE (r.state IN ('in_doubt', 'needs_review') OR (r.state = 'failed' AND (
        r.late_success_at IS NOT NULL OR (r.of_surplus AND NOT EXISTS (
            SELECT 1 FROM refunds n
            WHERE n.account_id = r.account_id AND n.charge_id = r.charge_id AND n.of_surplus AND n.id > r.id)))))
"""


async def list_doubtful_refunds_of_all(conn: Connection, *, limit: int) -> list[DoubtfulRefund]:
    """The operator's queue: those of every account, oldest first."""
    rows = await conn.fetch(_DOUBTFUL_REFUNDS + "ORDER BY r.id LIMIT $1", limit)
    return [_doubtful_refund(row) for row in rows]


async def find_doubtful_refund(conn: Connection, refund_id: uuid.UUID) -> DoubtfulRefund | None:
    row = await conn.fetchrow(_DOUBTFUL_REFUNDS + "AND r.id = $1", refund_id)
    return None if row is None else _doubtful_refund(row)


def _doubtful_refund(row: Record) -> DoubtfulRefund:
    return DoubtfulRefund(
        account_id=row["account_id"],
        id=row["id"],
        payment_id=row["payment_id"],
        amount_santim=row["amount_santim"],
        state=RefundState(row["state"]),
        rail=Wallet(row["rail"]),
        phone=row["phone"],
        ask_at=row["ask_at"],
        raw_code=row["raw_code"],
        has_late_success=row["has_late_success"],
    )


# What must add up. Each statement finds rows that do not: account_id, id (or none), what was expected and found.


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first row that is wrong, and how many there are."""

    account_id: int
    id: uuid.UUID | None
    named: str
    expected: str
    found: str
    count: int


async def begin_snapshot(conn: Connection) -> None:
    """Everything that follows on this connection sees the database as it is now."""
    await conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")


async def find_mismatch(conn: Connection, statement: LiteralString) -> Mismatch | None:
    row = await conn.fetchrow(
        "SELECT account_id, id, named::text, coalesce(expected::text, 'none') AS expected,"
        " coalesce(found::text, 'none') AS found, count(*) OVER () AS count FROM ("
        + statement
        + ") wrong ORDER BY account_id, id, named LIMIT 1"
    )
    if row is None:
        return None
    return Mismatch(row["account_id"], row["id"], row["named"], row["expected"], row["found"], row["count"])


DEBITS_ARE_CREDITS = """
    SELECT account_id, NULL::uuid AS id, 'credits' AS named, sum(debit_santim) AS expected, sum(credit_santim) AS found
    FROM ledger_balances GROUP BY account_id HAVING sum(debit_santim) <> sum(credit_santim)
"""

BALANCES_ARE_SUMS_OF_ENTRIES = """
    SELECT coalesce(b.account_id, e.account_id) AS account_id, NULL::uuid AS id,
        coalesce(b.ledger_account, e.ledger_account) AS named, e.santim AS expected, b.santim AS found
    FROM (
        SELECT account_id, ledger_account, sum(credit_santim - debit_santim) AS santim
        FROM ledger_balances GROUP BY account_id, ledger_account
    ) b FULL JOIN (
        SELECT account_id, ledger_account, sum(santim) AS santim FROM (
            SELECT account_id, credit AS ledger_account, amount_santim AS santim FROM ledger_entries
            UNION ALL SELECT account_id, debit, -amount_santim FROM ledger_entries
        ) moved GROUP BY account_id, ledger_account
    ) e USING (account_id, ledger_account)
    WHERE coalesce(b.santim, 0) <> coalesce(e.santim, 0)
"""

CHARGES_ARE_BOOKED = """
    SELECT coalesce(c.account_id, e.account_id) AS account_id, coalesce(c.id, e.source_id) AS id, 'entry' AS named,
        c.kind || ' ' || c.santim AS expected, e.kind || ' ' || e.amount_santim AS found
    FROM (
        SELECT c.account_id, c.id,
            CASE c.state WHEN 'surplus' THEN 'charge_surplus' ELSE 'charge_succeeded' END AS kind,
            coalesce(c.received_santim, p.amount_santim) AS santim
        FROM charges c JOIN payments p ON p.account_id = c.account_id AND p.id = c.payment_id
        WHERE c.state IN ('succeeded', 'surplus')
    ) c FULL JOIN (
        SELECT account_id, source_id, kind, amount_santim FROM ledger_entries
        WHERE kind IN ('charge_succeeded', 'charge_surplus')
    ) e ON e.account_id = c.account_id AND e.source_id = c.id AND e.kind = c.kind
    WHERE c.santim IS DISTINCT FROM e.amount_santim
"""

REFUNDS_ARE_BOOKED = """
    SELECT coalesce(r.account_id, e.account_id) AS account_id, coalesce(r.id, e.source_id) AS id, 'entry' AS named,
        r.kind || ' ' || r.amount_santim AS expected, e.kind || ' ' || e.amount_santim AS found
    FROM (
        SELECT account_id, id, 'refund_approved' AS kind, amount_santim FROM refunds WHERE approved_at IS NOT NULL
        UNION ALL SELECT account_id, id,
            CASE WHEN late_success_at IS NULL THEN 'refund_completed' ELSE 'refund_completed_late' END, amount_santim
        FROM refunds WHERE state = 'completed'
        UNION ALL SELECT account_id, id, 'refund_failed', amount_santim FROM refunds
        WHERE approved_at IS NOT NULL AND (state = 'failed' OR (state = 'completed' AND late_success_at IS NOT NULL))
    ) r FULL JOIN (
        SELECT account_id, source_id, kind, amount_santim FROM ledger_entries
        WHERE kind IN ('refund_approved', 'refund_completed', 'refund_completed_late', 'refund_failed')
    ) e ON e.account_id = r.account_id AND e.source_id = r.id AND e.kind = r.kind
    WHERE r.amount_santim IS DISTINCT FROM e.amount_santim
"""

COMPLETED_PAYMENTS_ARE_PAID = """
    SELECT p.account_id, p.id, 'charges that succeeded' AS named,
        (p.status = 'completed')::int AS expected, count(c.id) AS found
    FROM payments p LEFT JOIN charges c
        ON c.account_id = p.account_id AND c.payment_id = p.id AND c.state = 'succeeded'
    GROUP BY p.account_id, p.id HAVING (p.status = 'completed')::int <> count(c.id)
"""

RESERVED_IS_THE_SUM_OF_REFUNDS = """
    SELECT p.account_id, p.id, 'reserved_santim' AS named, coalesce(sum(r.amount_santim), 0) AS expected,
        p.reserved_santim AS found
    FROM payments p LEFT JOIN refunds r
        ON r.account_id = p.account_id AND r.payment_id = p.id AND r.state <> 'failed' AND NOT r.of_surplus
    GROUP BY p.account_id, p.id HAVING coalesce(sum(r.amount_santim), 0) <> p.reserved_santim
"""

REFUNDED_IS_THE_SUM_OF_COMPLETED_REFUNDS = """
    SELECT p.account_id, p.id, 'refunded_santim' AS named, coalesce(sum(r.amount_santim), 0) AS expected,
        p.refunded_santim AS found
    FROM payments p LEFT JOIN refunds r
        ON r.account_id = p.account_id AND r.payment_id = p.id AND r.state = 'completed' AND NOT r.of_surplus
    GROUP BY p.account_id, p.id HAVING coalesce(sum(r.amount_santim), 0) <> p.refunded_santim
"""

REFUNDS_ARE_WITHIN_PAYMENTS = """
    SELECT p.account_id, p.id, 'refunds at most' AS named, p.amount_santim AS expected, sum(r.amount_santim) AS found
    FROM payments p JOIN refunds r
        ON r.account_id = p.account_id AND r.payment_id = p.id AND r.state <> 'failed' AND NOT r.of_surplus
    GROUP BY p.account_id, p.id HAVING sum(r.amount_santim) > p.amount_santim
"""

SURPLUS_REFUNDS_ARE_WHAT_CAME = """
    SELECT r.account_id, r.id, 'amount at most' AS named, c.received_santim AS expected, r.amount_santim AS found
    FROM refunds r LEFT JOIN charges c ON c.account_id = r.account_id AND c.id = r.charge_id
    WHERE r.of_surplus AND r.amount_santim > coalesce(c.received_santim, 0)
"""

# The first 48 bits of an id are the milliseconds since 1970 in which it was made.
COUNTS_ARE_COUNTED = """
    SELECT account_id, NULL::uuid AS id, status || ' payments of ' || hour AS named, r.count AS expected,
        c.count AS found
    FROM (
        SELECT account_id, hour, status, count(*) AS count FROM (
            SELECT account_id, status, unnest(ARRAY['-infinity', date_trunc('hour', to_timestamp(
                ('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 1000))]) AS hour
            FROM payments
        ) each GROUP BY account_id, hour, status
    ) r FULL JOIN (
        SELECT account_id, hour, status, sum(count) AS count
        FROM payment_counts CROSS JOIN LATERAL (
            VALUES ('pending', pending), ('completed', completed), ('failed', failed), ('cancelled', cancelled)
        ) AS by_status (status, count)
        GROUP BY account_id, hour, status
    ) c USING (account_id, hour, status)
    WHERE coalesce(r.count, 0) <> coalesce(c.count, 0)
"""

VOLUME_IS_THE_SUM_OF_PAYMENTS = """
    SELECT account_id, NULL::uuid AS id, 'the volume of ' || hour AS named, r.santim AS expected, c.santim AS found
    FROM (
        SELECT account_id, hour, sum(amount_santim) AS santim FROM (
            SELECT account_id, amount_santim, unnest(ARRAY['-infinity', date_trunc('hour', to_timestamp(
                ('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 1000))]) AS hour
            FROM payments WHERE status = 'completed'
        ) each GROUP BY account_id, hour
    ) r FULL JOIN (
        SELECT account_id, hour, sum(completed_santim) AS santim FROM payment_counts GROUP BY account_id, hour
    ) c USING (account_id, hour)
    WHERE coalesce(r.santim, 0) <> coalesce(c.santim, 0)
"""

ENDS_ARE_TOLD_ONCE = """
    SELECT p.account_id, p.id, 'events payment.' || p.status AS named, 1 AS expected, count(e.id) AS found
    FROM payments p JOIN accounts a ON a.id = p.account_id LEFT JOIN events e
        ON e.account_id = p.account_id AND e.object_id = p.id AND e.type = 'payment.' || p.status
    WHERE p.status <> 'pending'  -- and was told in a month that is kept; a sandbox's clock only moves forward
        AND p.ended_at - a.clock_offset >= (SELECT coalesce(max(until), '-infinity') FROM dropped_months)
    GROUP BY p.account_id, p.id, p.status HAVING count(e.id) <> 1
"""

AUDIT_LOG_IS_WHOLE = (
    """
    SELECT account_id, id, 'seal ' || number AS named, encode(expected, 'hex') AS expected, encode(seal, 'hex') AS found
    FROM (
        SELECT e.account_id, e.id, e.number, e.seal, row_number() OVER chain AS place,
            sha256(coalesce(lag(e.seal) OVER chain, ''::bytea) || """
    + AUDIT_FACTS
    + """) AS expected
        FROM audit_entries e WHERE e.number IS NOT NULL
        WINDOW chain AS (PARTITION BY e.account_id ORDER BY e.number)
    ) sealed WHERE seal <> expected OR number <> place
"""
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One value of a gauge of metrics.py."""

    name: str
    livemode: bool
    label: str  # "" where the gauge has none
    value: float


async def measure(conn: Connection, *, per_endpoint: int) -> list[Measured]:
    """How the deployment stands, by environment; an endpoint with `per_endpoint` in flight has no room for more.

    Made so that it is quick also when much waits: what is not over has indexes of its own.
    """
    rows = await conn.fetch(
        """
        WITH found (name, account_id, label, value) AS (
            SELECT 'zembil_payments', a.id, counted.status, counted.n
            FROM accounts a CROSS JOIN LATERAL (
                SELECT sum(pending) AS pending, sum(completed) AS completed, sum(failed) AS failed,
                    sum(cancelled) AS cancelled
                FROM payment_counts c WHERE c.account_id = a.id AND c.hour = '-infinity'
            ) c CROSS JOIN LATERAL (
                VALUES ('pending', c.pending), ('completed', c.completed), ('failed', c.failed),
                    ('cancelled', c.cancelled)
            ) counted (status, n)
            WHERE counted.n IS NOT NULL
            UNION ALL
            SELECT 'zembil_charges_open', account_id, state, count(*) FROM charges
            WHERE state IN ('submitting', 'awaiting_customer', 'in_progress', 'in_doubt', 'needs_review')
            GROUP BY account_id, state
            UNION ALL
            SELECT 'zembil_refunds_open', account_id, state, count(*) FROM refunds
            WHERE state NOT IN ('completed', 'failed') GROUP BY account_id, state
            UNION ALL
            SELECT 'zembil_deliveries_waiting', account_id, '', count(*) FROM pending_deliveries GROUP BY account_id
            UNION ALL
            SELECT 'zembil_endpoints_failing', account_id, '', count(*) FROM webhook_endpoints
            WHERE enabled AND failing_since IS NOT NULL GROUP BY account_id
        )
        SELECT f.name, a.livemode, f.label, sum(f.value)::float8 AS value
        FROM found f JOIN accounts a ON a.id = f.account_id
        GROUP BY f.name, a.livemode, f.label
        UNION ALL
        SELECT 'zembil_deliveries_oldest_due_seconds', a.livemode, '',
            max(extract(epoch FROM statement_timestamp() - due.due_at))::float8
        FROM webhook_endpoints w JOIN accounts a ON a.id = w.account_id CROSS JOIN LATERAL (
            SELECT due_at FROM pending_deliveries p
            WHERE p.account_id = w.account_id AND p.endpoint_id = w.id AND p.in_flight_until IS NULL
            ORDER BY due_at LIMIT 1
        ) due
        WHERE due.due_at <= statement_timestamp()
            AND (SELECT count(*) FROM pending_deliveries p
                 WHERE p.account_id = w.account_id AND p.endpoint_id = w.id
                    AND p.in_flight_until > statement_timestamp()) < $1
        GROUP BY a.livemode
        ORDER BY 1, 2, 3
        """,
        per_endpoint,
    )
    return [Measured(*row.values()) for row in rows]
