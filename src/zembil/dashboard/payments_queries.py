"""SQL of the dashboard's payments: what a row of the list shows, and everything that happened to one payment."""

import uuid
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from zembil.db.pool import Connection
from zembil.payments.model import CancellationReason, ChargeState, FailureCode, PaymentStatus
from zembil.rails.rail import Wallet
from zembil.webhooks.model import DeliveryStatus, EventType

_DELIVERIES_MAX = 200


class PaymentRow(Struct, frozen=True):
    """A payment as the list and the export show it."""

    id: uuid.UUID
    status: PaymentStatus
    amount_santim: int
    refunded_santim: int
    ended_at: datetime | None
    transaction_id: uuid.UUID | None
    failure_code: FailureCode | None
    cancellation_reason: CancellationReason | None
    customer_id: uuid.UUID | None
    name: str | None
    phone: str | None
    email: str | None
    reference: str | None
    description: str | None
    metadata: str | None  # as JSON
    wallet: Wallet | None  # that paid it, as the next
    rail_reference: str | None


async def find_rows(conn: Connection, account_id: int, payment_ids: Sequence[uuid.UUID]) -> list[PaymentRow]:
    """These payments, newest first."""
    rows = await conn.fetch(
        """
        SELECT p.id, p.status, p.amount_santim, p.refunded_santim, p.ended_at, p.transaction_id, p.failure_code,
            p.cancellation_reason, p.customer_id, p.name, p.phone, p.email, p.reference, p.description, p.metadata,
            c.rail, c.rail_reference
        FROM payments p
            LEFT JOIN charges c ON c.account_id = p.account_id AND c.payment_id = p.id AND c.state = 'succeeded'
        WHERE p.account_id = $1 AND p.id = ANY ($2) ORDER BY p.id DESC
        """,
        account_id,
        payment_ids,
    )
    return [
        PaymentRow(
            row["id"],
            PaymentStatus(row["status"]),
            row["amount_santim"],
            row["refunded_santim"],
            row["ended_at"],
            row["transaction_id"],
            FailureCode(row["failure_code"]) if row["failure_code"] else None,
            CancellationReason(row["cancellation_reason"]) if row["cancellation_reason"] else None,
            row["customer_id"],
            row["name"],
            row["phone"],
            row["email"],
            row["reference"],
            row["description"],
            row["metadata"],
            Wallet(row["rail"]) if row["rail"] else None,
            row["rail_reference"],
        )
        for row in rows
    ]


class ChargeRow(Struct, frozen=True):
    """A charge of a payment; instants are in the account's time."""

    id: uuid.UUID
    rail: Wallet
    phone: str
    state: ChargeState
    failure_code: FailureCode | None
    raw_code: str | None
    rail_reference: str | None
    ended_at: datetime | None


async def list_charges(conn: Connection, account_id: int, payment_id: uuid.UUID) -> list[ChargeRow]:
    """In their order; a payment has few."""
    rows = await conn.fetch(
        """
        SELECT id, rail, phone, state, failure_code, raw_code, rail_reference, ended_at FROM charges
        WHERE account_id = $1 AND payment_id = $2 ORDER BY id
        """,
        account_id,
        payment_id,
    )
    return [
        ChargeRow(
            row["id"],
            Wallet(row["rail"]),
            row["phone"],
            ChargeState(row["state"]),
            FailureCode(row["failure_code"]) if row["failure_code"] else None,
            row["raw_code"],
            row["rail_reference"],
            row["ended_at"],
        )
        for row in rows
    ]


class EventRow(Struct, frozen=True):
    id: uuid.UUID  # of the database's time
    object_id: uuid.UUID
    type: EventType
    created_at: datetime  # in the account's time


async def list_events_about(conn: Connection, account_id: int, object_ids: Sequence[uuid.UUID]) -> list[EventRow]:
    """Every event about these objects, in their order; an object has few."""
    rows = await conn.fetch(
        """
        SELECT id, object_id, type, created_at FROM events
        WHERE account_id = $1 AND object_id = ANY ($2) AND NOT is_test ORDER BY id
        """,
        account_id,
        object_ids,
    )
    return [EventRow(row["id"], row["object_id"], EventType(row["type"]), row["created_at"]) for row in rows]


class AttemptRow(Struct, frozen=True):
    """One POST of a delivery, or a delivery that has made none yet: then without a number."""

    delivery_id: uuid.UUID
    event_id: uuid.UUID
    status: DeliveryStatus  # of the delivery
    endpoint: str | None  # its description, else its address; None: it is gone
    number: int | None
    started_at: datetime | None
    latency_ms: int | None
    status_code: int | None
    error: str | None


async def list_attempts_of_events(
    conn: Connection, account_id: int, event_ids: Sequence[uuid.UUID]
) -> list[AttemptRow]:
    """Every attempt of every delivery of these events, by hand too; oldest delivery first.

    The first deliveries of an event have ids of its millisecond (webhooks/queries.py: insert_events), so few rows are
    read; those that were made by hand have an index of their own.
    """
    rows = await conn.fetch(
        """
        WITH asked AS (
            SELECT id, (left(id::text, 13) || '-0000-0000-000000000000')::uuid AS first,
                (left(id::text, 13) || '-ffff-ffff-ffffffffffff')::uuid AS last
            FROM unnest($2::uuid[]) AS t (id)
        ), found AS (
            SELECT d.id, d.endpoint_id, d.event_id, d.status FROM asked a JOIN deliveries d
                ON d.account_id = $1 AND d.id BETWEEN a.first AND a.last AND d.event_id = a.id
            UNION
            SELECT p.id, p.endpoint_id, p.event_id, 'pending' FROM asked a JOIN pending_deliveries p
                ON p.account_id = $1 AND p.id BETWEEN a.first AND a.last AND p.event_id = a.id
            UNION
            SELECT d.id, d.endpoint_id, d.event_id, d.status FROM asked a JOIN deliveries d
                ON d.account_id = $1 AND d.event_id = a.id AND d.redelivery_of IS NOT NULL
            UNION
            SELECT p.id, p.endpoint_id, p.event_id, 'pending' FROM asked a JOIN pending_deliveries p
                ON p.account_id = $1 AND p.event_id = a.id AND p.redelivery_of IS NOT NULL
        ), shown AS (
            SELECT * FROM found ORDER BY id LIMIT $3
        )
        SELECT s.id, s.event_id, s.status, coalesce(nullif(w.description, ''), w.url) AS endpoint,
            t.number, t.started_at, t.latency_ms, t.status_code, t.error
        FROM shown s
            LEFT JOIN webhook_endpoints w ON w.account_id = $1 AND w.id = s.endpoint_id
            LEFT JOIN delivery_attempts t ON t.account_id = $1 AND t.delivery_id = s.id
        ORDER BY s.id, t.number
        """,
        account_id,
        event_ids,
        _DELIVERIES_MAX,
    )
    return [
        AttemptRow(
            row["id"],
            row["event_id"],
            DeliveryStatus(row["status"]),
            row["endpoint"],
            row["number"],
            row["started_at"],
            row["latency_ms"],
            row["status_code"],
            row["error"],
        )
        for row in rows
    ]


async def find_payment_of_charge(conn: Connection, account_id: int, charge_id: uuid.UUID) -> uuid.UUID | None:
    payment_id: uuid.UUID | None = await conn.fetchval(
        "SELECT payment_id FROM charges WHERE account_id = $1 AND id = $2", account_id, charge_id
    )
    return payment_id


async def find_payment_of_receipt(conn: Connection, account_id: int, number: str) -> uuid.UUID | None:
    """The payment that a wallet knows by its own number; a reference of the merchant's that reads alike comes first.

    Were two wallets to give the same number, it is the newer payment.
    """
    payment_id: uuid.UUID | None = await conn.fetchval(
        """
        SELECT payment_id FROM charges
        WHERE account_id = $1 AND rail = ANY ($2) AND rail_reference = ANY ($3)
            AND NOT EXISTS (SELECT FROM payments WHERE account_id = $1 AND reference = $4)
        ORDER BY id DESC LIMIT 1
        """,
        account_id,
        [wallet.value for wallet in Wallet],
        [number, number.upper()],
        number,
    )
    return payment_id
