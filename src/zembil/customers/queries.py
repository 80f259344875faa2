"""SQL for customers."""

import uuid
from dataclasses import dataclass

import msgspec

from zembil.customers.model import Customer
from zembil.db.pool import Connection, Record
from zembil.wire import encoded

_COLUMNS = "account_id, id, email, phone, name, external_id, metadata, sequence, updated_at"


async def insert_customer(conn: Connection, customer: Customer) -> None:
    """Raises UniqueViolation for its external_id."""
    await conn.execute(
        "INSERT INTO customers (" + _COLUMNS + ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        customer.account_id,
        customer.id,
        customer.email,
        customer.phone,
        customer.name,
        customer.external_id,
        encoded(customer.metadata).decode(),
        customer.sequence,
        customer.updated_at,
    )


async def find_customer(conn: Connection, account_id: int, customer_id: uuid.UUID) -> Customer | None:
    row = await conn.fetchrow(
        "SELECT " + _COLUMNS + " FROM customers WHERE account_id = $1 AND id = $2", account_id, customer_id
    )
    return None if row is None else _customer(row)


async def lock_customer(conn: Connection, account_id: int, customer_id: uuid.UUID) -> Customer | None:
    """Read a customer and hold its row until the transaction ends."""
    row = await conn.fetchrow(
        "SELECT " + _COLUMNS + " FROM customers WHERE account_id = $1 AND id = $2 FOR NO KEY UPDATE",
        account_id,
        customer_id,
    )
    return None if row is None else _customer(row)


async def update_customer(conn: Connection, customer: Customer) -> None:
    """Raises UniqueViolation for its external_id."""
    await conn.execute(
        """
        UPDATE customers SET email = $3, phone = $4, name = $5, external_id = $6, metadata = $7, sequence = $8,
            updated_at = $9
        WHERE account_id = $1 AND id = $2
        """,
        customer.account_id,
        customer.id,
        customer.email,
        customer.phone,
        customer.name,
        customer.external_id,
        encoded(customer.metadata).decode(),
        customer.sequence,
        customer.updated_at,
    )


async def delete_customer(conn: Connection, account_id: int, customer_id: uuid.UUID) -> bool:
    """Answers whether there was one."""
    done = await conn.execute("DELETE FROM customers WHERE account_id = $1 AND id = $2", account_id, customer_id)
    return done == "DELETE 1"


async def erase_from_payments(conn: Connection, account_id: int, customer_id: uuid.UUID) -> None:
    """Erase the personal data on a customer's payments, and hold their rows until the transaction ends.

    A prompt that was not pushed yet has no phone any more, so its payment waits for its page instead.
    """
    await conn.execute(
        """
        UPDATE payments p
        SET email = NULL, phone = NULL, name = NULL,
            due_at = CASE WHEN p.due_at IS NULL THEN NULL ELSE p.expires_at - a.clock_offset END
        FROM (
            SELECT account_id, id FROM payments WHERE account_id = $1 AND customer_id = $2
            ORDER BY id FOR NO KEY UPDATE
        ) theirs JOIN accounts a ON a.id = theirs.account_id
        WHERE p.account_id = theirs.account_id AND p.id = theirs.id
        """,
        account_id,
        customer_id,
    )


async def has_money_on_its_way(conn: Connection, account_id: int, customer_id: uuid.UUID) -> bool:
    """Whether money of the customer may still come or has to go back, for which its rail needs the phone.

    The rows of the payments are held. A charge may be open, or its late money be waited for, though its payment has
    ended; surplus money has to go back also before its refund is asked for, and after that failed.
    """
    return bool(
        await conn.fetchval(
            """
            SELECT EXISTS (
                SELECT FROM payments p JOIN charges c ON c.account_id = p.account_id AND c.payment_id = p.id
                WHERE p.account_id = $1 AND p.customer_id = $2 AND (
                    c.ask_at IS NOT NULL OR c.ended_at IS NULL OR (c.state = 'surplus' AND NOT EXISTS (
                        SELECT FROM refunds s WHERE s.account_id = c.account_id AND s.charge_id = c.id
                            AND s.of_surplus AND s.state = 'completed')))
            ) OR EXISTS (
                SELECT FROM payments p JOIN refunds r ON r.account_id = p.account_id AND r.payment_id = p.id
                WHERE p.account_id = $1 AND p.customer_id = $2 AND r.state NOT IN ('completed', 'failed')
            )
            """,
            account_id,
            customer_id,
        )
    )


async def erase_from_charges(conn: Connection, account_id: int, customer_id: uuid.UUID) -> None:
    """The phones that were charged; the rows of the payments are held."""
    await conn.execute(
        """
        UPDATE charges c SET phone = ''
        FROM payments p
        WHERE p.account_id = $1 AND p.customer_id = $2 AND c.account_id = p.account_id AND c.payment_id = p.id
        """,
        account_id,
        customer_id,
    )


@dataclass(frozen=True, slots=True)
class CustomerFilter:
    """Which customers of an account a list shows; None: any."""

    email: str | None = None
    phone: str | None = None
    external_id: str | None = None


async def list_customers(
    conn: Connection, account_id: int, wanted: CustomerFilter, *, before: uuid.UUID | None, limit: int, offset: int
) -> tuple[list[Customer], int]:
    """Newest first, older than the customer `before`, and how many there are in all, both of one snapshot."""
    # Planned twice, for what each needs: the total reads an index alone, the page no more rows than it has.
    rows = await conn.fetch(
        "WITH found AS NOT MATERIALIZED (SELECT "
        + _COLUMNS
        + """ FROM customers
            WHERE account_id = $1 AND ($2::text IS NULL OR email = $2) AND ($3::text IS NULL OR phone = $3)
                AND ($4::text IS NULL OR external_id = $4)
        ), listed AS (
            SELECT * FROM found WHERE $5::uuid IS NULL OR id < $5 ORDER BY id DESC LIMIT $6 OFFSET $7
        )
        SELECT total.total, listed.* FROM (SELECT count(*) AS total FROM found) total LEFT JOIN listed ON true
        ORDER BY listed.id DESC
        """,
        account_id,
        wanted.email,
        wanted.phone,
        wanted.external_id,
        before,
        limit,
        offset,
    )
    return [_customer(row) for row in rows if row["id"] is not None], rows[0]["total"]


def _customer(row: Record) -> Customer:
    return Customer(
        account_id=row["account_id"],
        id=row["id"],
        email=row["email"],
        phone=row["phone"],
        name=row["name"],
        external_id=row["external_id"],
        metadata=msgspec.json.decode(row["metadata"], type=dict[str, str]),
        sequence=row["sequence"],
        updated_at=row["updated_at"],
    )
