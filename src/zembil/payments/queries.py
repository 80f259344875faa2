"""SQL for payments and charges."""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from zembil import ids
from zembil.db.pool import Columns, Connection, Record
from zembil.payments.model import (
    CancellationReason,
    Charge,
    ChargeState,
    FailureCode,
    Payment,
    PaymentStatus,
    ShownPayment,
)
from zembil.rails.rail import Wallet
from zembil.webhooks.model import Event
from zembil.wire import read_back

_PAYMENT_COLUMNS = """
    p.account_id, p.id, p.amount_santim, p.expires_at, p.due_at, p.ended_at, p.customer_id, p.open_charge_id,
    p.transaction_id, p.link_secret, p.sequence, p.charges_sent, p.reserved_santim, p.refunded_santim, p.status,
    p.failure_code, p.cancellation_reason, p.mobile_money_provider, p.email, p.phone, p.name, p.description,
    p.reference, p.callback_url, p.metadata
"""
_CHARGE_COLUMNS = """
    c.account_id, c.id, c.payment_id, c.rail, c.phone, c.pushed, c.state, c.failure_code, c.raw_code, c.rail_reference,
    c.prompted_at, c.confirmed_at, c.ended_at, c.ask_at, c.asked, c.received_santim
"""

# Everything that creating payments writes, in one statement: idempotency keys, payments, their first events, the
# deliveries of those, and the counts. A row whose key is taken is not written; the answer is the ids that were. Keys,
# references and counts are written in sorted order by every writer, or two groups could wait for each other.
INSERT_PAYMENTS = """
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::bigint[], $4::timestamptz[], $5::timestamptz[], $6::uuid[],
                         $7::bytea[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[],
                         $14::text[], $15::text[], $16::timestamptz[], $17::uuid[], $18::timestamptz[], $19::bytea[],
                         $20::text[], $21::bytea[])
        AS t (account_id, id, amount_santim, expires_at, due_at, customer_id, link_secret, mobile_money_provider, email,
              phone, name, description, reference, callback_url, metadata, hour, event_id, told_at, payload, key,
              fingerprint)
), keyed AS (
    INSERT INTO idempotency_keys AS k (account_id, key, fingerprint, resource_id, created_at)
    SELECT account_id, key, fingerprint, id, told_at FROM asked WHERE key IS NOT NULL ORDER BY account_id, key
    ON CONFLICT (account_id, key) DO UPDATE
    SET fingerprint = excluded.fingerprint, resource_id = excluded.resource_id, created_at = excluded.created_at,
        status = NULL, answer = NULL, is_sealed = false
    WHERE k.created_at <= excluded.created_at - interval '24 hours'
    RETURNING resource_id
), fresh AS MATERIALIZED (
    SELECT * FROM asked WHERE key IS NULL OR id IN (SELECT resource_id FROM keyed)
), paid AS (
    INSERT INTO payments (account_id, id, amount_santim, expires_at, due_at, customer_id, link_secret,
                          mobile_money_provider, email, phone, name, description, reference, callback_url, metadata)
    SELECT account_id, id, amount_santim, expires_at, due_at, customer_id, link_secret, mobile_money_provider, email,
        phone, name, description, reference, callback_url, metadata::jsonb
    FROM fresh ORDER BY account_id, reference
), told AS (
    INSERT INTO events (account_id, id, object_id, sequence, type, created_at, payload)
    SELECT account_id, event_id, id, 1, 'payment.created', told_at, payload FROM fresh
), due AS (
    INSERT INTO pending_deliveries (account_id, endpoint_id, id, event_id, due_at)
    SELECT a.account_id, w.id, (left(a.event_id::text, 13) || right(md5(a.event_id::text || w.id::text), 20))::uuid,
        a.event_id, now()
    FROM fresh a JOIN webhook_endpoints w
        ON w.account_id = a.account_id AND w.enabled AND w.events && ARRAY['payment.created', '*']
), counted AS (
    INSERT INTO payment_counts AS c (account_id, hour, slot, pending)
    SELECT account_id, at.hour, $22, count(*)
    FROM fresh CROSS JOIN LATERAL (VALUES (fresh.hour), ('-infinity')) AS at (hour)
    GROUP BY account_id, at.hour ORDER BY account_id, at.hour
    ON CONFLICT (account_id, hour, slot) DO UPDATE SET pending = c.pending + excluded.pending
)
SELECT id FROM fresh
"""


class NewPayment(Struct, frozen=True):
    """A payment to be written, with the event that tells of it."""

    payment: Payment
    shown: ShownPayment
    created: Event
    metadata_json: str | None
    key: str | None = None  # of its request
    fingerprint: bytes | None = None


def columns_of(rows: Sequence[NewPayment]) -> list[list[object]]:
    """The parameters of INSERT_PAYMENTS but the last: one array per column."""
    table = [
        (
            p.account_id,
            p.id,
            p.amount_santim,
            p.expires_at,
            p.due_at,
            p.customer_id,
            p.link_secret,
            p.mobile_money_provider,
            p.email,
            p.phone,
            p.name,
            p.description,
            p.reference,
            p.callback_url,
            row.metadata_json,
            hour_of(p.id),
            row.created.id,
            row.created.created_at,
            row.created.payload,
            row.key,
            row.fingerprint,
        )
        for row in rows
        for p in (row.payment,)
    ]
    return [list(column) for column in zip(*table, strict=True)]


async def insert_payments(conn: Connection, rows: Sequence[NewPayment], *, slot: int) -> list[bool]:
    """Write payments with their events, deliveries and counts: all or none. `slot` of the counts is the writer's.

    Answers for each whether it was written: a payment whose idempotency key is taken is not.
    """
    # A statement cannot meet a key twice; of two requests with one key the second has to look what the first made.
    first: dict[tuple[int, str], NewPayment] = {}
    for row in rows:
        if row.key is not None:
            first.setdefault((row.payment.account_id, row.key), row)
    asked = [row for row in rows if row.key is None or first[row.payment.account_id, row.key] is row]
    written = {row["id"] for row in await conn.fetch(INSERT_PAYMENTS, *columns_of(asked), slot)}
    return [row.payment.id in written for row in rows]


def hour_of(payment_id: uuid.UUID) -> datetime:
    """The hour in which a payment was created, in which it is counted."""
    return ids.created_at(payment_id).replace(minute=0, second=0, microsecond=0)


async def find_payment(conn: Connection, account_id: int, payment_id: uuid.UUID) -> Payment | None:
    row = await conn.fetchrow(
        "SELECT" + _PAYMENT_COLUMNS + "FROM payments p WHERE p.account_id = $1 AND p.id = $2", account_id, payment_id
    )
    return None if row is None else _payment(row)


async def find_payment_and_charge(
    conn: Connection, account_id: int, payment_id: uuid.UUID
) -> tuple[Payment, Charge | None] | None:
    """A payment and its last charge, in one statement: its page asks for nothing so often."""
    row = await conn.fetchrow(
        "SELECT"
        + _PAYMENT_COLUMNS
        + """, c.id AS c_id, c.rail AS c_rail, c.phone AS c_phone, c.pushed AS c_pushed, c.state AS c_state,
            c.failure_code AS c_failure_code, c.raw_code AS c_raw_code, c.rail_reference AS c_rail_reference,
            c.prompted_at AS c_prompted_at, c.confirmed_at AS c_confirmed_at, c.ended_at AS c_ended_at,
            c.ask_at AS c_ask_at, c.asked AS c_asked, c.received_santim AS c_received_santim,
            c.account_id AS c_account_id, c.payment_id AS c_payment_id
        FROM payments p LEFT JOIN LATERAL (
            SELECT * FROM charges
            WHERE account_id = p.account_id AND payment_id = p.id ORDER BY id DESC LIMIT 1
        ) c ON true
        WHERE p.account_id = $1 AND p.id = $2
        """,
        account_id,
        payment_id,
    )
    if row is None:
        return None
    return _payment(row), None if row["c_id"] is None else _charge(_Prefixed(row, "c_"))


async def lock_payment(conn: Connection, account_id: int, payment_id: uuid.UUID) -> Payment | None:
    """Read a payment and hold its row until the transaction ends."""
    row = await conn.fetchrow(
        "SELECT" + _PAYMENT_COLUMNS + "FROM payments p WHERE p.account_id = $1 AND p.id = $2 FOR NO KEY UPDATE",
        account_id,
        payment_id,
    )
    return None if row is None else _payment(row)


async def update_payment(conn: Connection, payment: Payment, *, was: Payment) -> bool:
    """Write what changes in a payment's life, if it still is as it `was`; answers whether it did."""
    done = await conn.execute(
        """
        UPDATE payments
        SET status = $3, sequence = $4, charges_sent = $5, due_at = $6, ended_at = $7, open_charge_id = $8,
            transaction_id = $9, failure_code = $10, cancellation_reason = $11
        WHERE account_id = $1 AND id = $2 AND status = $12 AND sequence = $13
            AND open_charge_id IS NOT DISTINCT FROM $14
        """,
        payment.account_id,
        payment.id,
        payment.status.value,
        payment.sequence,
        payment.charges_sent,
        payment.due_at,
        payment.ended_at,
        payment.open_charge_id,
        payment.transaction_id,
        payment.failure_code,
        payment.cancellation_reason,
        was.status.value,
        was.sequence,
        was.open_charge_id,
    )
    return done == "UPDATE 1"


async def update_counts(conn: Connection, payment: Payment, *, was: PaymentStatus, slot: int) -> None:
    """Count the payment in its new status instead of the one it had."""
    moved = {status: (status is payment.status) - (status is was) for status in PaymentStatus}
    await conn.execute(
        """
        INSERT INTO payment_counts AS c
            (account_id, hour, slot, pending, completed, failed, cancelled, completed_santim)
        VALUES ($1, '-infinity', $3, $4, $5, $6, $7, $8), ($1, $2, $3, $4, $5, $6, $7, $8)
        ON CONFLICT (account_id, hour, slot) DO UPDATE
        SET pending = c.pending + excluded.pending, completed = c.completed + excluded.completed,
            failed = c.failed + excluded.failed, cancelled = c.cancelled + excluded.cancelled,
            completed_santim = c.completed_santim + excluded.completed_santim
        """,
        payment.account_id,
        hour_of(payment.id),
        slot,
        moved[PaymentStatus.PENDING],
        moved[PaymentStatus.COMPLETED],
        moved[PaymentStatus.FAILED],
        moved[PaymentStatus.CANCELLED],
        moved[PaymentStatus.COMPLETED] * payment.amount_santim,
    )


async def list_due_payments(conn: Connection, *, at: datetime, limit: int) -> list[Payment]:
    """Payments that have to be pushed or expired by now; held, so that no other worker takes them too."""
    rows = await conn.fetch(
        "SELECT"
        + _PAYMENT_COLUMNS
        + "FROM payments p WHERE p.due_at <= $1 ORDER BY p.due_at LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED",
        at,
        limit,
    )
    return [_payment(row) for row in rows]


async def advance_due_times(conn: Connection, account_id: int, *, by: timedelta) -> None:
    """The account's clock moved forward: what its payments and charges wait for comes nearer."""
    await conn.execute(
        "UPDATE payments SET due_at = due_at - $2::interval WHERE account_id = $1 AND due_at IS NOT NULL",
        account_id,
        by,
    )
    await conn.execute(
        "UPDATE charges SET ask_at = ask_at - $2::interval WHERE account_id = $1 AND ask_at IS NOT NULL", account_id, by
    )


async def realign_due_times(conn: Connection) -> None:
    """Bring forward what was written while its account's clock was being moved, by a process that did not know yet."""
    await conn.execute(
        """
        UPDATE payments p SET due_at = p.expires_at - a.clock_offset
        FROM accounts a
        WHERE a.clock_advanced_at > now() - interval '5 seconds' AND p.account_id = a.id
            AND p.due_at > p.expires_at - a.clock_offset
        """
    )


async def is_reference_taken(conn: Connection, payment: Payment) -> bool:
    """Whether another pending or completed payment has this payment's reference."""
    return bool(
        await conn.fetchval(
            """
            SELECT true FROM payments
            WHERE account_id = $1 AND reference = $2 AND status IN ('pending', 'completed') AND id <> $3
            """,
            payment.account_id,
            payment.reference,
            payment.id,
        )
    )


# Charges


async def update_key(conn: Connection, account_id: int, key: str, *, resource_id: uuid.UUID) -> None:
    """Keep which charge a request with this idempotency key began, in its transaction."""
    await conn.execute(
        "UPDATE idempotency_keys SET resource_id = $3 WHERE account_id = $1 AND key = $2", account_id, key, resource_id
    )


async def insert_charge(conn: Connection, charge: Charge) -> None:
    await conn.execute(
        """
        INSERT INTO charges (account_id, id, payment_id, rail, phone, pushed, state, ask_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        """,
        charge.account_id,
        charge.id,
        charge.payment_id,
        charge.rail.value,
        charge.phone,
        charge.pushed,
        charge.state.value,
        charge.ask_at,
    )


async def find_charge(conn: Connection, account_id: int, charge_id: uuid.UUID) -> Charge | None:
    row = await conn.fetchrow(
        "SELECT" + _CHARGE_COLUMNS + "FROM charges c WHERE c.account_id = $1 AND c.id = $2", account_id, charge_id
    )
    return None if row is None else _charge(row)


async def find_paid_charge(conn: Connection, account_id: int, payment_id: uuid.UUID) -> Charge | None:
    """The charge that completed a payment."""
    row = await conn.fetchrow(
        "SELECT"
        + _CHARGE_COLUMNS
        + "FROM charges c WHERE c.account_id = $1 AND c.payment_id = $2 AND c.state = 'succeeded'",
        account_id,
        payment_id,
    )
    return None if row is None else _charge(row)


async def is_rail_reference_taken(conn: Connection, charge: Charge, reference: str) -> bool:
    """Whether another charge of the account is known to the same rail by this reference."""
    return bool(
        await conn.fetchval(
            """
            SELECT true FROM charges WHERE account_id = $1 AND rail = $2 AND rail_reference = $3 AND id <> $4
            """,
            charge.account_id,
            charge.rail.value,
            reference,
            charge.id,
        )
    )


async def count_prompts(conn: Connection, account_id: int, phone: str, *, since: datetime) -> int:
    count: int = await conn.fetchval(
        "SELECT count(*) FROM charges WHERE account_id = $1 AND phone = $2 AND id >= $3",
        account_id,
        phone,
        ids.id_at(since),
    )
    return count


async def lock_phone(conn: Connection, account_id: int, phone: str) -> None:
    """Until the transaction ends, nobody else counts and prompts this phone for the account."""
    await conn.execute("SELECT pg_advisory_xact_lock(hashtextextended($2, $1))", account_id, phone)


async def update_charge(conn: Connection, charge: Charge) -> None:
    """Write what changes in a charge's life; its payment's row is held."""
    await conn.execute(
        """
        UPDATE charges
        SET state = $3, failure_code = $4, raw_code = $5, rail_reference = $6, prompted_at = $7, confirmed_at = $8,
            ended_at = $9, ask_at = $10, asked = $11, received_santim = $12
        WHERE account_id = $1 AND id = $2
        """,
        charge.account_id,
        charge.id,
        charge.state.value,
        charge.failure_code,
        charge.raw_code,
        charge.rail_reference,
        charge.prompted_at,
        charge.confirmed_at,
        charge.ended_at,
        charge.ask_at,
        charge.asked,
        charge.received_santim,
    )


async def claim_charges_to_ask(conn: Connection, *, at: datetime, again_at: datetime, limit: int) -> list[Charge]:
    """Charges about which the rail is to be asked now; if we die while asking, they are due again at `again_at`."""
    rows = await conn.fetch(
        "UPDATE charges c SET ask_at = $2 FROM ("
        "SELECT account_id, id FROM charges WHERE ask_at <= $1 ORDER BY ask_at LIMIT $3 FOR UPDATE SKIP LOCKED"
        ") due WHERE c.account_id = due.account_id AND c.id = due.id RETURNING" + _CHARGE_COLUMNS,
        at,
        again_at,
        limit,
    )
    return [_charge(row) for row in rows]


# Rows


class _Prefixed:
    """The columns of a row whose names begin alike, by the rest of their names."""

    def __init__(self, row: Record, prefix: str) -> None:
        self._row = row
        self._prefix = prefix

    def __getitem__(self, column: str, /) -> Any:
        return self._row[self._prefix + column]


def _payment(row: Record) -> Payment:
    metadata: str | None = row["metadata"]
    return Payment(
        account_id=row["account_id"],
        id=row["id"],
        amount_santim=row["amount_santim"],
        expires_at=row["expires_at"],
        due_at=row["due_at"],
        ended_at=row["ended_at"],
        customer_id=row["customer_id"],
        open_charge_id=row["open_charge_id"],
        transaction_id=row["transaction_id"],
        link_secret=row["link_secret"],
        sequence=row["sequence"],
        charges_sent=row["charges_sent"],
        reserved_santim=row["reserved_santim"],
        refunded_santim=row["refunded_santim"],
        status=PaymentStatus(row["status"]),
        failure_code=FailureCode(row["failure_code"]) if row["failure_code"] else None,
        cancellation_reason=CancellationReason(row["cancellation_reason"]) if row["cancellation_reason"] else None,
        mobile_money_provider=row["mobile_money_provider"],
        email=row["email"],
        phone=row["phone"],
        name=row["name"],
        description=row["description"],
        reference=row["reference"],
        callback_url=row["callback_url"],
        metadata=None if metadata is None else read_back(metadata),
    )


def _charge(row: Columns) -> Charge:
    return Charge(
        account_id=row["account_id"],
        id=row["id"],
        payment_id=row["payment_id"],
        rail=Wallet(row["rail"]),
        phone=row["phone"],
        pushed=row["pushed"],
        state=ChargeState(row["state"]),
        failure_code=FailureCode(row["failure_code"]) if row["failure_code"] else None,
        raw_code=row["raw_code"],
        rail_reference=row["rail_reference"],
        prompted_at=row["prompted_at"],
        confirmed_at=row["confirmed_at"],
        ended_at=row["ended_at"],
        ask_at=row["ask_at"],
        asked=row["asked"],
        received_santim=row["received_santim"],
    )
